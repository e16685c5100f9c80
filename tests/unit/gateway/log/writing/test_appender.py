"""Batches share entries and keep their order, and none waits for ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from gateway.config.limits import MIB
from gateway.errors import KafkaError, error_code
from gateway.log.entries.message_entry import EncodedEntry, encode_record
from gateway.log.transactions.checkpoints import Tag
from gateway.log.writing.appender import UNANSWERED_S
from gateway.log.writing.pending_batch import PendingBatch
from gateway.pulsar.errors import ConnectionLostError, MessageTooLargeError, PulsarError
from gateway.pulsar.producer import Producer
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.frames import encode_metadata_properties
from tests.unit.gateway.log.writing.appender_scene import FakeProducer, Scene, turn


async def test_an_idle_partition_sends_at_once_and_what_follows_shares() -> None:
    scene = Scene()
    scene.append(b"1")
    await turn()
    assert scene.producer.sent == [b"1"]
    for number in range(2, 12):
        scene.append(str(number % 10).encode())
        await turn()
    scene.confirm_all()
    assert b"".join(scene.producer.sent) == b"".join(scene.log.written) == b"12345678901"
    assert len(scene.producer.sent) < 6
    assert scene.appender.idle


async def test_what_comes_in_one_turn_shares_an_entry_up_to_its_limit() -> None:
    scene = Scene(append_max_entry_bytes=1_024)
    scene.append(b"a" * 500, b"b" * 500, b"c" * 500, b"d" * 5_000, b"e")
    await turn()
    scene.confirm_all()
    assert [len(data) for data in scene.producer.sent] == [1_000, 500, 5_000, 1]


async def test_in_flight_is_bounded() -> None:
    scene = Scene(append_max_in_flight_entries=3)
    for _ in range(10):
        scene.append(b"x" * 300_000)
        await turn()
    assert len(scene.producer.sent) == 3
    scene.confirm_all()
    assert len(b"".join(scene.producer.sent)) == 3_000_000


async def test_a_batch_that_is_too_large_does_not_keep_others_back() -> None:
    scene = Scene(max_message_bytes=2_000, append_max_entry_bytes=1_024)
    scene.append(b"1", b"x" * 3_000, b"2")
    await turn()
    scene.confirm_all()
    assert scene.log.refused == [b"x" * 3_000]
    assert scene.log.written == [b"1", b"2"]


async def test_batches_share_no_entry_that_the_broker_would_refuse() -> None:
    scene = Scene(max_message_bytes=2_048)
    scene.append(*[b"x" * 900] * 4)
    await turn()
    scene.confirm_all()
    assert scene.log.refused == []
    assert [len(data) for data in scene.producer.sent] == [900] * 4


async def test_the_messages_of_an_entry_are_counted_in_32_bits() -> None:
    """A compressed batch may announce any number of records. Other clients' batches must not be refused with it."""
    scene = Scene()
    scene.append(b"1", b"2", count=2**30)
    scene.append(b"3", count=2**30 - 1)
    scene.append(b"4", b"5")
    await turn()
    scene.confirm_all()
    assert scene.log.refused == [] and scene.log.written == [b"1", b"2", b"3", b"4", b"5"]
    assert scene.producer.sent == [b"1", b"23", b"45"]


async def test_sending_goes_on_when_the_connection_takes_more() -> None:
    """Other partitions may have filled its buffer: no receipt of this partition will arrive."""
    scene = Scene()
    scene.producer.connection.writable = False
    scene.append(b"1")
    await turn()
    assert scene.producer.sent == []
    scene.producer.connection.writable = True
    scene.producer.connection.writable_event.set()
    await turn()
    assert scene.producer.sent == [b"1"]


async def test_a_full_queue_tells_producers_to_wait_and_then_refuses() -> None:
    scene = Scene(append_max_in_flight_bytes=MIB, append_max_queued_bytes=MIB, append_max_entry_bytes=MIB)
    scene.producer.connection.writable = False
    scene.append(b"x" * 600_000)
    assert not scene.appender.has_room
    with pytest.raises(KafkaError):
        scene.append(b"x" * 600_000)
    scene.producer.connection.writable = True
    scene.producer.connection.writable_event.set()
    await turn()
    assert scene.appender.has_room


async def test_a_refused_entry_frees_its_place() -> None:
    scene = Scene(append_max_in_flight_entries=1)
    scene.append(b"1")
    await turn()
    scene.append(b"2")
    await turn()
    assert scene.producer.sent == [b"1"]
    scene.appender.on_send_error(0, PulsarError("no"))
    assert (scene.log.refused, scene.producer.sent) == ([b"1"], [b"1", b"2"])


async def test_what_a_lost_producer_sent_is_claimed_or_abandoned() -> None:
    scene = Scene()
    scene.append(b"1" * 300_000)
    await turn()
    scene.append(b"2" * 300_000)
    await turn()
    scene.appender.on_producer_closed(PulsarError("lost"))
    assert scene.appender.claim("other", 0) is None
    claimed = scene.appender.claim("fake", 0)
    assert claimed is not None
    assert scene.appender.claim("fake", 0) is None
    left = scene.appender.abandon_in_flight()
    assert [bytes(data[:1]) for data in (claimed.data, *(batch.data for batch in left))] == [b"1", b"2"]
    assert scene.appender.idle


@pytest.mark.parametrize(
    ("producer_id", "age_s", "stopped"), [(7, 2 * UNANSWERED_S, True), (7, 0, False), (None, 2 * UNANSWERED_S, False)]
)
async def test_without_the_lease_what_is_not_answered_is_stopped(
    producer_id: int | None, age_s: float, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.append(b"1", producer_id=producer_id)
    await turn()
    now = time.monotonic() + age_s
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert scene.appender.on_lease_lost() == []
    assert [type(error) for error in scene.producer.errors] == [ConnectionLostError] * stopped


async def test_without_the_lease_what_waits_of_idempotent_producers_is_given_up() -> None:
    scene = Scene(append_max_in_flight_entries=1)
    scene.append(b"1")
    await turn()
    scene.append(b"2", producer_id=7)
    scene.append(b"3")
    scene.append(b"4", producer_id=8)
    assert [bytes(batch.data) for batch in scene.appender.on_lease_lost()] == [b"2", b"4"]
    scene.confirm()
    assert scene.producer.sent == [b"1", b"3"]


async def test_what_is_of_idempotent_producers_leaves_only_while_no_other_gateway_can_lead() -> None:
    scene = Scene()
    scene.append(b"1")
    await turn()
    scene.append(b"2", producer_id=7)
    await turn()
    plain, idempotent = scene.producer.conditions
    assert plain is None and idempotent is not None
    assert idempotent()
    scene.log.leads = False
    assert not idempotent()


async def test_what_is_encoded_already_has_an_entry_of_its_own() -> None:
    scene = Scene()
    data = encode_batch([Record(0, 1, b"k", b"v")])
    messages = encode_record(Record(0, 1, b"k", b"v"), compacted=False)
    encoded = EncodedEntry(b"encoded", encode_metadata_properties([]))
    for each in (encoded, messages, messages, encoded):
        scene.appender.append(PendingBatch(memoryview(bytearray(data)), 1, None, lambda *_: None, each))
    while scene.confirmed < len(scene.producer.sent) or not scene.producer.sent:
        await asyncio.sleep(0)
        scene.confirm()
    assert scene.producer.sent == [b"encoded", messages + messages, b"encoded"]


async def test_callers_get_the_exception_of_an_entry_that_cannot_be_encoded() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    scene = Scene()

    def fail(size_bytes: int, room_bytes: int) -> Tag:
        raise AssertionError("a defect")

    scene.appender.next_tag = fail
    scene.append(b"one")
    await asyncio.sleep(0)
    assert (scene.log.refused, scene.appender.idle) == ([b"one"], True)
    assert [str(each["exception"]) for each in reported] == ["a defect"]
    scene.appender.next_tag = lambda size_bytes, room_bytes: Tag()
    scene.append(b"two")
    await asyncio.sleep(0)
    assert scene.producer.sent == [b"two"]


async def test_batches_do_not_wait_for_the_connection_of_a_lost_producer() -> None:
    scene = Scene()
    scene.producer.connection.writable = False
    scene.append(b"1")
    await turn()
    scene.appender.on_producer_closed(ConnectionLostError("the topic has moved"))
    successor = FakeProducer()
    successor.connection.writable = False
    scene.appender.use(cast(Producer, successor))
    await turn()
    successor.connection.writable = True
    successor.connection.writable_event.set()
    await turn()
    assert successor.sent == [b"1"]


async def test_a_topic_that_allows_less_gets_smaller_entries() -> None:
    scene = Scene()
    scene.append(b"a" * 500, b"b" * 500, b"c" * 500, b"d" * 500)
    await turn()
    scene.appender.on_send_error(0, MessageTooLargeError("more than the topic allows"))
    assert len(scene.log.refused) == 4
    assert [error_code(error) for error in scene.log.errors] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    scene.append(b"a" * 500, b"b" * 500, b"c" * 500, b"d" * 500)
    await turn()
    assert [len(data) for data in scene.producer.sent] == [2_000, 1_000, 1_000]
