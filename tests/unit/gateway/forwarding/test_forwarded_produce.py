"""Batches of one producer stay in order while the leaders behind a single address change."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

from gateway.forwarding.forwarded_produce import ProduceOrder
from gateway.log.writing.refused_batches import RefusedBatches
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from protocol.kafka.messages.records import ProduceRequest
from protocol.kafka.records import Record, encode_batch

PRODUCER_ID = 7


def request(sequence: int, partition: int = 0, producer_id: int = PRODUCER_ID) -> ProduceRequest:
    records = encode_batch(
        [Record(0, 1, None, b"v")], base_offset=0, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    rows = [ProducedPartition(index=partition, records=memoryview(records))]
    return ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[ProducedTopic(name="t", partition_data=rows)])


def response(partition: int, code: ErrorCode) -> Any:
    row = SimpleNamespace(index=partition, error_code=code)
    return SimpleNamespace(responses=[SimpleNamespace(name="t", topic_id=None, partition_responses=[row])])


async def test_a_new_epoch_waits_for_what_was_sent_in_the_old_one() -> None:
    order = ProduceOrder(RefusedBatches())
    assert order.is_drained(1)
    answer = asyncio.get_running_loop().create_future()
    order.sent_until(1, answer)
    assert order.is_drained(1)
    assert not order.is_drained(2)
    waiting = asyncio.ensure_future(order.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    answer.set_result(None)
    await waiting
    await asyncio.sleep(0)
    assert order.is_drained(2)


def test_a_refused_batch_has_to_come_again_before_the_next() -> None:
    order = ProduceOrder(RefusedBatches())
    first, second = request(0), request(1)
    assert order.may_follow(first)
    order.answered(first, response(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not order.may_follow(second)
    assert order.may_follow(request(1, partition=1))
    assert order.may_follow(request(1, producer_id=PRODUCER_ID + 1))
    assert order.may_follow(first)
    assert order.may_follow(second)


def test_what_is_refused_for_good_is_not_waited_for() -> None:
    order = ProduceOrder(RefusedBatches())
    order.answered(request(0), response(0, ErrorCode.MESSAGE_TOO_LARGE))
    assert order.may_follow(request(1))


def test_records_without_a_sequence_pass() -> None:
    order = ProduceOrder(RefusedBatches())
    plain = request(-1, producer_id=-1)
    order.answered(plain, response(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    for records in (None, memoryview(b"short")):
        plain.topic_data[0].partition_data[0].records = records
        order.answered(plain, response(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert order.may_follow(plain)


def test_topics_are_known_by_the_ids_that_the_client_gives() -> None:
    """A gateway may not know a new topic's name yet when it refuses the first batch, and know it for the second."""
    order, topic_id = ProduceOrder(RefusedBatches()), uuid.uuid4()
    first, second = request(0), request(1)
    for asked, name in ((first, ""), (second, "t")):
        asked.topic_data[0].topic_id, asked.topic_data[0].name = topic_id, name
    answer = response(0, ErrorCode.UNKNOWN_TOPIC_ID)
    answer.responses[0].name, answer.responses[0].topic_id = "", topic_id
    order.answered(first, answer)
    assert not order.may_follow(second)
    assert order.may_follow(first)
    assert order.may_follow(second)
