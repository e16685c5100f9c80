"""When a produce request is done with: also one with acks=0, though it has no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.handlers.records import produce as produce_handler
from gateway.handlers.records import produce_answers
from gateway.handlers.records.produce import ProduceCall
from gateway.handlers.records.produce_answers import Part
from gateway.log.transactions.verifications import VerificationLostError, Verifications
from gateway.requests.call import ClosesConnection
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from tests.unit.gateway.handlers.records.produces import produce


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_it_is_done_with_when_it_is_written(acks: int) -> None:
    call, log = produce(acks)
    assert call.append().future is call.future
    assert not call.future.done()
    log.done(5, None)
    assert call.future.result() is (None if acks == 0 else call.response)


async def test_a_failed_write_is_answered() -> None:
    call, log = produce(-1)
    call.append()
    log.done(-1, TimeoutError())
    assert call.future.result() is call.response


async def test_a_failed_write_without_an_answer_ends_the_connection() -> None:
    call, log = produce(0)
    call.append()
    log.done(-1, TimeoutError())
    assert isinstance(call.future.exception(), ClosesConnection)


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)]
)
async def test_a_batch_whose_verification_a_marker_has_voided_comes_again(version: int, code: ErrorCode) -> None:
    call, log = produce(-1)
    call.call.version = version

    def append(*_: Any) -> bool:
        raise VerificationLostError

    cast(Any, log).append = append
    call.append()
    assert call._parts[0].answer.error_code == code
    assert call.future.result() is call.response


@pytest.mark.parametrize("check_s", [1.0, 0.0])
@pytest.mark.parametrize(
    ("version", "acks", "code"),
    [
        (13, 1, ErrorCode.UNKNOWN_TOPIC_ID),
        (12, 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_topic_that_does_not_exist_has_the_same_error_however_long_the_check_takes(
    monkeypatch: pytest.MonkeyPatch, check_s: float, version: int, acks: int, code: ErrorCode
) -> None:
    """The check leaves what it has no time for to the preparation."""
    monkeypatch.setattr(produce_handler, "CHECK_S", check_s)
    found, _ = produce(acks)
    call = cast(Any, found.call)
    call.version, call.topics = version, SimpleNamespace(get=AsyncMock(return_value=None))
    call.cluster.topics = SimpleNamespace(cached=lambda name: None)
    named: dict[str, Any] = {"topic_id": uuid4()} if version >= 13 else {"name": "t"}
    call.request.topic_data = [ProducedTopic(**named, partition_data=[ProducedPartition(index=3, records=None)])]
    call.request.transactional_id = None
    call = ProduceCall(call)
    call.check()
    await call.prepare()
    assert call.response.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize(("began_before", "code"), [(True, 0), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
async def test_a_batch_that_was_checked_before_the_first_transaction_of_its_compacted_topic_comes_again(
    monkeypatch: pytest.MonkeyPatch, began_before: bool, code: int
) -> None:
    """Its records have no compaction keys: Pulsar would remove a deletion, and not the older record with such a key."""
    monkeypatch.setattr(produce_answers, "_point_to_leader", lambda *_: None)
    call, log = produce(-1)
    [part] = call._parts
    part.topic = cast(Any, SimpleNamespace(compacts=True, has_transactions=began_before))
    cast(Any, part.produced).header.is_transactional = False
    cast(Any, log).transactions = SimpleNamespace(flagged=True)
    call.append()
    if began_before:
        log.done(5, None)
    assert part.answer.error_code == code
    assert call.future.result() is call.response


@pytest.mark.parametrize(
    ("differs", "found"),
    [
        ({}, True),
        ({"version": 12}, False),  # the coordinator has to add the partition first
        ({"role": PartitionRole.WITHOUT_LEASE}, False),
        ({"begun": False}, False),  # a property of the topic has to be written first
        ({"lacks": False}, False),
        ({"transactional_id": None}, False),
        ({"code": ErrorCode.TRANSACTION_ABORTABLE}, False),
        ({"code": None}, False),  # another gateway coordinates the transaction
    ],
)
async def test_a_transaction_that_this_gateway_coordinates_is_verified_at_once(
    differs: dict[str, Any], found: bool
) -> None:
    case = SimpleNamespace(
        **{"version": 11, "role": PartitionRole.LEADING, "begun": True, "lacks": True, "transactional_id": "id",
           "code": ErrorCode.NONE} | differs
    )  # fmt: skip
    produce_call, log = produce(-1)
    verifications, call = Verifications(), cast(Any, produce_call.call)
    call.version, call.request.transactional_id, call.client.arrived_s = case.version, case.transactional_id, 0.0
    call.cluster.fleet.role = lambda *_: case.role
    call.cluster.verifier = SimpleNamespace(verify_here=lambda *_: case.code)
    cast(Any, log).lacks_verification = lambda *_: case.lacks
    cast(Any, log).transactional_writes = SimpleNamespace(verifications=verifications)
    [part] = produce_call._parts
    part.topic = cast(Any, SimpleNamespace(compacts=False, has_transactions=case.begun))
    header = cast(Any, part.produced).header
    header.is_transactional, header.producer_id, header.producer_epoch = True, 7, 3
    produce_call._verify_at_once(part)
    assert verifications.include(7, 3) == found


# The request's own time


async def test_what_is_not_written_in_time_is_answered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_handler, "MIN_TIMEOUT_S", 0)
    call, log = produce(-1, timeout_ms=1)
    call.append()
    async with asyncio.timeout(5):
        assert await call.future is call.response
    [part] = call._parts
    assert part.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    log.done(5, None)  # late: the answer stays what the client was told
    assert part.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert part.answer.base_offset == -1


async def test_acks_0_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_handler, "MIN_TIMEOUT_S", 0)
    call, log = produce(0, timeout_ms=0)
    call.append()
    await asyncio.sleep(0.01)
    assert not call.future.done()
    log.done(5, None)
    assert call.future.result() is None


async def test_a_partition_that_does_not_open_costs_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_handler, "MIN_TIMEOUT_S", 0)
    call, log = produce(-1, timeout_ms=50)
    slow = Part(ProducedTopic(name="t"), 1, None)
    slow.produced = call._parts[0].produced
    call._parts.append(slow)

    async def prepare(part: Part) -> None:
        if part is slow:
            await asyncio.Event().wait()

    monkeypatch.setattr(call, "_look_up", AsyncMock())
    monkeypatch.setattr(call, "_open_log", prepare)
    async with asyncio.timeout(5):
        reply = await call.prepare()
    assert reply.future is call.future
    log.done(7, None)
    assert call.future.result() is call.response
    assert [part.answer.error_code for part in call._parts] == [0, ErrorCode.REQUEST_TIMED_OUT]


async def test_what_is_sent_late_because_of_another_partition_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    call, log = produce(-1, timeout_ms=1_000)
    call._waits_since -= 1.0  # the whole time went to the other partition
    call.append()
    for _ in range(5):
        await asyncio.sleep(0)
    log.done(7, None)
    assert call.future.result() is call.response
    assert call._parts[0].answer.error_code == 0


async def test_records_that_take_longer_than_the_time_are_appended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client would send them again, and again in vain."""
    monkeypatch.setattr(produce_handler, "MIN_TIMEOUT_S", 0)
    call, log = produce(-1, timeout_ms=20)
    [part] = call._parts
    part.is_heavy, decoded = True, part.produced
    part.produced, part.log = None, None

    async def decode(*_: Any) -> Any:
        await asyncio.sleep(0.1)
        return decoded

    async def opened(part: Part) -> None:
        part.log = cast(Any, log)

    cast(Any, call.call.cluster).logs = SimpleNamespace(decoding=SimpleNamespace(run=decode))
    monkeypatch.setattr(call, "_look_up", AsyncMock())
    monkeypatch.setattr(call, "_open_log", opened)
    async with asyncio.timeout(5):
        await call.prepare()
    log.done(7, None)
    assert (part.answer.error_code, part.answer.base_offset) == (0, 7)


@pytest.mark.parametrize("new_id", [1, 2])
async def test_a_topic_that_is_made_anew_while_records_are_decoded(
    monkeypatch: pytest.MonkeyPatch, new_id: int
) -> None:
    """The new topic may be a compacted one: the batch was decoded for the old one."""
    call, log = produce(-1)
    [part] = call._parts
    part.is_heavy, decoded = True, part.produced
    part.produced, part.log = None, None
    part.topic = cast(Any, SimpleNamespace(topic_id=1, partitions=1, compacts=False, writes_messages=False))
    found = [part.topic]

    async def decode(*_: Any) -> Any:
        found[0] = cast(Any, SimpleNamespace(topic_id=new_id, writes_messages=False))
        return decoded

    async def opened(part: Part) -> None:
        part.log = cast(Any, log)

    cluster = cast(Any, call.call.cluster)
    cluster.topics = SimpleNamespace(cached=lambda _: found[0])
    cluster.logs = SimpleNamespace(decoding=SimpleNamespace(run=decode), find=lambda *_: None)
    monkeypatch.setattr(call, "_open_log", opened)
    monkeypatch.setattr(produce_handler, "check_leader", lambda *_: None)
    monkeypatch.setattr(produce_answers, "_point_to_leader", lambda *_: None)
    await call.prepare()
    if new_id == 1:
        log.done(7, None)
        assert part.answer.error_code == 0
    else:
        assert part.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("exists", [True, False])
async def test_a_topic_that_leaves_the_cache_as_soon_as_it_is_found_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """It was deleted, and perhaps created again, before the request that had asked for it went on."""
    call, log = produce(-1)
    [part] = call._parts
    produced, part.produced, part.log = part.produced, None, None
    topic = SimpleNamespace(topic_id=1, compacts=False, writes_messages=False, partitions=1)
    known: list[Any] = []
    lookups = [topic, topic if exists else None]

    async def get(name: str) -> Any:
        await asyncio.sleep(0)
        found = lookups.pop(0)
        if found is not None and not lookups:
            known.append(found)
        return found

    async def opened(part: Part) -> None:
        part.log = cast(Any, log)

    cluster = cast(Any, call.call.cluster)
    cluster.topics = SimpleNamespace(cached=lambda _: known[0] if known else None, get=get)
    cast(Any, call.call).topics = cluster.topics
    cluster.logs = SimpleNamespace(find=lambda *_: None)
    monkeypatch.setattr(call, "_checked", lambda *_: produced)
    monkeypatch.setattr(call, "_open_log", opened)
    monkeypatch.setattr(produce_answers, "_point_to_leader", lambda *_: None)
    async with asyncio.timeout(5):
        await call.prepare()
    if exists:
        log.done(7, None)
    assert part.answer.error_code == (0 if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert lookups == []


@pytest.mark.parametrize("now", [None, SimpleNamespace(writes_messages=True)])
async def test_a_batch_that_was_checked_for_another_format_is_refused(now: Any) -> None:
    """The topic became compacted meanwhile, before its first record: Pulsar could not compact this one."""
    call, _ = produce(-1)
    [part] = call._parts
    part.topic = cast(Any, SimpleNamespace(writes_messages=False))
    cast(Any, call.call.cluster).topics = SimpleNamespace(cached=lambda _: now)
    refused: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "refuse", lambda call, response, part, error: refused.append(error.code))
        call._check_format(part)
    assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
