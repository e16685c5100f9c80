"""DescribeClientQuotas (key 48), v0-v1 (KIP-546). v1 flexible."""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import KafkaError
from gateway.fan_out import sliced
from gateway.requests.call import Call
from gateway.security.quota_entities import CLIENT_ID, IP, TYPES, USER
from gateway.security.records import Entity
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import DescribeClientQuotasRequest, DescribeClientQuotasResponse

EXACT, DEFAULT, SPECIFIED = range(3)
_Entry = DescribeClientQuotasResponse.EntryData
_Component = DescribeClientQuotasRequest.ComponentData


class _Filter(NamedTuple):
    exact: dict[str, str | None]
    """Names by type; None is the default entity."""
    types: set[str]
    """Types that entities must have, with any name."""
    strict: bool
    """Entities must not have other types."""

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity)
        if self.strict and len(parts) != len(self.exact) + len(self.types):
            return False
        return self.types <= set(parts) and all(
            kind in parts and parts[kind] == name for kind, name in self.exact.items()
        )


async def handle(call: Call[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter(call.request)
    except KafkaError as error:
        call.count_error(error.code)
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.text, entries=None)
    quotas = tuple(call.cluster.security.state.quotas.items())
    entries = [
        _entry(entity, values)
        async for entity, values in sliced(quotas)
        if values and wanted.matches(entity)  # without values, it was removed meanwhile
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _entry(entity: Entity, values: dict[str, float]) -> _Entry:
    return _Entry(
        entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(dict(entity).items())],
        values=[_Entry.ValueData(key=quota, value=value) for quota, value in sorted(values.items())],
    )


def _filter(request: DescribeClientQuotasRequest) -> _Filter:
    """Raises KafkaError."""
    wanted = _Filter({}, set(), request.strict)
    for each in request.components:
        _check(each, set(wanted.exact) | wanted.types)
        if each.match_type == SPECIFIED:
            wanted.types.add(each.entity_type)
        else:
            wanted.exact[each.entity_type] = each.match
    kinds = set(wanted.exact) | wanted.types
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        text = "Invalid entity filter component combination."
        raise _invalid(f"{text} IP filter component should not be used with user or clientId filter component.")
    return wanted


def _check(component: _Component, before: set[str]) -> None:
    kind, match_type, match = component.entity_type, component.match_type, component.match
    if not kind:
        raise _invalid("Invalid empty entity type.")
    if kind in before:
        raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if match_type == EXACT and match is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type in {DEFAULT, SPECIFIED} and match is not None:
        name = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    if match_type not in {EXACT, DEFAULT, SPECIFIED}:
        raise _invalid(f"Unknown match type {match_type}")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
