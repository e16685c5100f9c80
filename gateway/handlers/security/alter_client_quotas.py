"""AlterClientQuotas (key 49), v0-v1 (KIP-546). v1 flexible."""

from __future__ import annotations

from collections import Counter

from gateway.errors import KafkaError, error_code
from gateway.fan_out import Slices, sliced
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.security.quota_entities import invalid_entity, invalid_quota
from gateway.security.records import Entity, QuotaKey, quota_record
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import AlterClientQuotasRequest, AlterClientQuotasResponse

_Wanted = AlterClientQuotasRequest.EntryData
_Row = AlterClientQuotasResponse.EntryData
Changes = dict[QuotaKey, float | None]
MAX_OPS = 100
"""There are far fewer quotas: of so many operations, two are for the same one, or one is for none."""
MAX_PARTS = 100
"""Of an entity, which has two at most."""


async def handle(call: Call[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    """Each entity is altered completely or not at all."""
    changes: Changes = {}
    errors: dict[Entity, KafkaError | None] = {}
    slices = Slices()
    for entry in call.request.entries:
        await slices.pause()
        entity = _entity(entry)
        try:
            if entity in errors:
                raise _invalid(f"Ignoring duplicate entity {dict(entity)}")
            wanted = _changes(entry, entity)
        except KafkaError as error:
            errors[entity] = error
        else:
            errors[entity] = None
            changes.update(wanted)
    if not call.request.validate_only:
        try:
            records = [quota_record(*change) async for change in sliced(changes.items())]
            await call.cluster.security.change(records, call.context.requester)
        except (KafkaError, PulsarError) as failure:
            unknown = KafkaError(error_code(failure), str(failure))
            errors = {entity: known or unknown async for entity, known in sliced(errors.items())}
    return AlterClientQuotasResponse(entries=[_row(call, *each) async for each in sliced(errors.items())])


def _entity(entry: _Wanted) -> Entity:
    """As in Kafka, the last name of a type counts."""
    return frozenset({each.entity_type: each.entity_name for each in entry.entity[-MAX_PARTS:]}.items())


def _changes(entry: _Wanted, entity: Entity) -> Changes:
    """Raises KafkaError."""
    ops = entry.ops[:MAX_OPS]
    twice = [key for key, times in Counter(each.key for each in ops).items() if times > 1]
    if twice:
        raise _invalid(f"Duplicate quota key {twice[0]} not updating quota for this entity {dict(entity)}")
    if len(entry.entity) > MAX_PARTS:
        raise _invalid(f"An entity has more than {MAX_PARTS} parts")
    reason = invalid_entity([(each.entity_type, each.entity_name) for each in entry.entity])
    if reason is not None:
        raise _invalid(reason)
    changes: Changes = {}
    for each in ops:
        value = None if each.remove else each.value
        if value is not None and (reason := invalid_quota(entity, each.key, value)) is not None:
            raise _invalid(reason)
        # Also what is so already: another gateway may have changed it just now.
        changes[QuotaKey(entity, each.key)] = value
    return changes


def _row(call: Call, entity: Entity, error: KafkaError | None) -> _Row:
    code = ErrorCode.NONE if error is None else error.code
    call.count_error(code)
    return _Row(
        error_code=code, error_message=None if error is None else error.text,
        entity=[_Row.EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(dict(entity).items())],
    )  # fmt: skip


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
