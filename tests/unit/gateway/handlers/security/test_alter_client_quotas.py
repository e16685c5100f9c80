"""AlterClientQuotas: entities of very many parts, which nobody has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gateway.handlers.security import alter_client_quotas
from gateway.handlers.security.alter_client_quotas import MAX_PARTS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import AlterClientQuotasRequest

Entry = AlterClientQuotasRequest.EntryData


async def answered(*parts: tuple[str, str | None]) -> Any:
    """The row of one entity without operations."""
    entity = [Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
    request = AlterClientQuotasRequest(entries=[Entry(entity=entity, ops=[])], validate_only=True)
    security = SimpleNamespace(state=SimpleNamespace(quotas={}))
    call: Any = SimpleNamespace(
        request=request, cluster=SimpleNamespace(security=security), count_error=lambda code: None
    )
    [row] = (await alter_client_quotas.handle(call)).entries
    return row


async def test_the_answer_does_not_name_thousands_of_parts() -> None:
    """To put them in order would hold up everybody else."""
    row = await answered(*((f"type-{number}", None) for number in range(10 * MAX_PARTS)))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert len(row.entity) == MAX_PARTS


async def test_the_last_name_of_a_type_counts() -> None:
    row = await answered(("user", "first"), ("user", "last"))
    assert row.error_code == ErrorCode.NONE
    assert [(part.entity_type, part.entity_name) for part in row.entity] == [("user", "last")]
