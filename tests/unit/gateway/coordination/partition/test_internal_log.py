"""The log of one partition: replay up to the barrier, shared entries, the order of answers, and loss."""

import asyncio
from typing import Any, cast

import pytest

from gateway.coordination.partition import internal_log, log_reading
from gateway.coordination.partition.internal_log import InternalLog, Record
from gateway.coordination.partition.log_reading import read_records
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, ProducerFencedError, RequestTimeoutError
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic, FakeProducer

BARRIER: Record = (b"barrier", None)
NOW_MS = 1_000


class Harness:
    def __init__(self, topic: FakeInternalTopic | None = None) -> None:
        self.topic = topic or FakeInternalTopic()
        self.replayed: list[Record] = []
        self.answers: list[tuple[str, ErrorCode]] = []
        self.log = InternalLog(cast(PulsarClient, self.topic), "t", lambda: NOW_MS, lambda: None)

    async def open(self, predecessor: Any = None) -> "Harness":
        await self.log.open(BARRIER, self._replay_to, predecessor)
        return self

    async def _replay_to(self, end: Position) -> None:
        client = cast(PulsarClient, self.topic)
        await read_records(client, "t", "earliest", end, self._replay, read_compacted=True)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self.replayed.append((key, value))

    @property
    def producer(self) -> FakeProducer:
        return self.topic.producers[-1]

    def append(self, name: str, *records: Record, irrevocable: bool = False) -> None:
        def on_done(error: ErrorCode, now_ms: int) -> None:
            assert now_ms == NOW_MS
            self.answers.append((name, error))

        self.log.append(records, on_done, irrevocable=irrevocable)


async def test_replays_all_that_was_written() -> None:
    first = await Harness().open()
    first.append("a", (b"k1", b"v1"), (b"k2", b"v2"))
    first.append("b", (b"k1", None), (b"\xff", b""))
    await let_callbacks_run()
    assert first.answers == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]
    second = await Harness(first.topic).open()
    written: list[Record] = [(b"k1", b"v1"), (b"k2", b"v2"), (b"k1", None), (b"\xff", b"")]
    assert second.replayed == [BARRIER, *written, BARRIER]


@pytest.mark.parametrize(("count", "size_bytes"), [(10 * log_reading.SLICE_RECORDS, 1), (10, 128 * 1024)])
async def test_other_tasks_run_while_an_entry_is_replayed(count: int, size_bytes: int) -> None:
    first = await Harness().open()
    first.append("a", *((b"k%d" % number, b"v" * size_bytes) for number in range(count)))
    await let_callbacks_run()
    second = Harness(first.topic)
    opening = asyncio.create_task(second.open())
    seen = set()
    while not opening.done():
        seen.add(len(second.replayed))
        await asyncio.sleep(0)
    assert len(seen) >= 10


async def test_one_moment_is_one_entry() -> None:
    harness = await Harness().open()
    for number in range(5):
        harness.append(str(number), (b"k", b"%d" % number))
    await let_callbacks_run()
    assert harness.topic.records()[1:] == [[(b"k", b"%d" % number) for number in range(5)]]
    assert [name for name, _ in harness.answers] == list("01234")


async def test_what_is_to_be_alone_has_an_entry_of_its_own() -> None:
    harness = await Harness().open()
    harness.append("before", (b"k", b"1"))
    harness.log.append([(b"mark", None)], lambda error, now_ms: marked.append(harness.log.durable_up_to), alone=True)
    marked: list[Position] = []
    harness.append("behind", (b"k", b"2"))
    await let_callbacks_run()
    assert harness.topic.records()[1:] == [[(b"k", b"1")], [(b"mark", None)], [(b"k", b"2")]]
    assert marked == [harness.topic.entries[2].position]


async def test_nothing_is_answered_inside_append_or_before_the_receipt() -> None:
    harness = await Harness().open()
    harness.topic.holds = True
    harness.append("a", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers == []
    harness.producer.confirm()
    assert harness.answers == [("a", ErrorCode.NONE)]


async def test_large_append_needs_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "MAX_ENTRY_BYTES", 100)
    harness = await Harness().open()
    harness.topic.holds = True
    harness.append("large", *((b"k%d" % number, b"v" * 60) for number in range(3)))
    harness.append("small", (b"k", b"v"))
    await let_callbacks_run()
    assert [len(records) for records in harness.topic.records()[1:]] == [1, 1, 1, 1]
    harness.producer.confirm()
    harness.producer.confirm()
    assert harness.answers == []
    harness.producer.confirm()
    assert harness.answers == [("large", ErrorCode.NONE)]
    harness.producer.confirm()
    assert harness.answers[1:] == [("small", ErrorCode.NONE)]


async def test_too_large_record_is_refused_in_its_turn() -> None:
    harness = await Harness().open()
    harness.topic.holds = True
    harness.append("before", (b"k", b"v"))
    harness.append("huge", (b"ok", b"v"), (b"k", b"v" * FakeProducer.max_message_bytes))
    harness.append("after", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers == []
    harness.producer.confirm()
    assert harness.answers == [("before", ErrorCode.NONE), ("huge", ErrorCode.MESSAGE_TOO_LARGE)]
    harness.producer.confirm()
    assert harness.answers[2:] == [("after", ErrorCode.NONE)]
    assert (b"ok", b"v") not in harness.topic.records()[-1], "a refused append leaves nothing"


async def test_the_largest_record_that_a_coordinator_may_write_is_stored() -> None:
    """Its key has two of the longest ids, and is no text."""
    harness = await Harness().open()
    key = b"\xff" * 66_000
    harness.append("largest", (key, b"v" * (harness.log.max_record_bytes - len(key))))
    await let_callbacks_run()
    assert harness.answers == [("largest", ErrorCode.NONE)]


async def test_empty_append_is_done_in_its_turn() -> None:
    harness = await Harness().open()
    harness.append("empty")
    assert harness.answers == []
    await let_callbacks_run()
    assert harness.answers == [("empty", ErrorCode.NONE)]
    assert len(harness.topic.entries) == 1


async def test_more_waits_while_much_is_in_flight() -> None:
    harness = await Harness().open()
    harness.topic.holds = True
    for number in range(internal_log.MAX_IN_FLIGHT_ENTRIES + 3):
        harness.append(str(number), (b"k", b"%d" % number))
        await let_callbacks_run()
    assert len(harness.topic.entries) == 1 + internal_log.MAX_IN_FLIGHT_ENTRIES
    harness.producer.confirm()
    await let_callbacks_run()
    assert len(harness.topic.records()[-1]) == 3, "what waited shares an entry"


async def test_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "MAX_QUEUED_BYTES", 50)
    harness = await Harness().open()
    harness.append("crowd", (b"k", b"v" * 100))
    await let_callbacks_run()
    assert harness.answers == [("crowd", ErrorCode.NOT_ENOUGH_REPLICAS)]
    harness.append("next", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers[1:] == [("next", ErrorCode.NONE)]


async def test_an_irrevocable_append_is_not_refused_in_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "MAX_QUEUED_BYTES", 50)
    harness = await Harness().open()
    harness.append("done already", (b"k1", b"v" * 100), irrevocable=True)
    harness.append("crowd", (b"k2", b"v" * 100))
    harness.append("done, too", (b"k3", b"v" * 100), irrevocable=True)
    await let_callbacks_run()
    assert harness.answers == [
        ("done already", ErrorCode.NONE), ("crowd", ErrorCode.NOT_ENOUGH_REPLICAS), ("done, too", ErrorCode.NONE)
    ]  # fmt: skip
    assert [key for records in harness.topic.records()[1:] for key, _ in records] == [b"k1", b"k3"]


async def test_loss_fails_everything_in_order() -> None:
    harness = await Harness().open()
    harness.topic.holds = True
    for number in range(internal_log.MAX_IN_FLIGHT_ENTRIES + 2):
        harness.append(str(number), (b"k", b"v"))
        await let_callbacks_run()
    harness.producer.lose()
    await let_callbacks_run()
    harness.append("late", (b"k", b"v"))
    await let_callbacks_run()
    names = [*map(str, range(internal_log.MAX_IN_FLIGHT_ENTRIES + 2)), "late"]
    assert harness.answers == [(name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in names]
    assert isinstance(await harness.log.wait_lost(), ConnectionLostError)


async def test_very_many_appends_are_refused_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients commit more and more while Pulsar does not answer, until the log is given up: that took seconds."""
    monkeypatch.setattr(internal_log, "FAILED_TOGETHER", 4)
    harness = await Harness().open()
    harness.topic.holds = True
    names = [str(number) for number in range(internal_log.MAX_IN_FLIGHT_ENTRIES + 20)]
    for name in names[: internal_log.MAX_IN_FLIGHT_ENTRIES]:
        harness.append(name, (b"k", b"v"))
        await let_callbacks_run()
    for name in names[internal_log.MAX_IN_FLIGHT_ENTRIES :]:
        harness.append(name, (b"k", b"v"))
    harness.producer.lose()
    answered = len(harness.answers)
    assert answered <= 2, "so are those in flight"
    harness.append("late", (b"k", b"v"))
    while len(harness.answers) <= len(names):
        await asyncio.sleep(0)
        assert len(harness.answers) - answered <= 2
        answered = len(harness.answers)
    assert harness.answers == [(name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in [*names, "late"]]


async def test_dead_producer_is_noticed_by_sending() -> None:
    harness = await Harness().open()
    harness.producer.closed = True
    harness.append("a", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert harness.log.is_lost


async def test_many_appends_after_an_unnoticed_loss_all_fail() -> None:
    harness = await Harness().open()
    harness.producer.closed = True
    for number in range(3):
        harness.append(str(number), (b"k", b"v" * internal_log.MAX_ENTRY_BYTES))
    await let_callbacks_run()
    assert harness.answers == [(str(number), ErrorCode.NOT_LEADER_OR_FOLLOWER) for number in range(3)]


async def test_refused_appends_do_not_hold_up_the_rest() -> None:
    harness = await Harness().open()
    refused = internal_log.MAX_IN_FLIGHT_ENTRIES + 1
    for number in range(refused):
        harness.append(str(number), (b"k", b"v" * FakeProducer.max_message_bytes))
    harness.append("good", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers[-1] == ("good", ErrorCode.NONE)
    assert {error for _, error in harness.answers[:-1]} == {ErrorCode.MESSAGE_TOO_LARGE}


async def test_newer_log_fences_the_older() -> None:
    first = await Harness().open()
    second = await Harness(first.topic).open()
    first.append("a", (b"k", b"v"))
    await let_callbacks_run()
    assert first.answers == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert isinstance(await first.log.wait_lost(), ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        await Harness(first.topic).open(predecessor=first.log.producer)
    await second.log.close()
    assert second.log.is_lost


async def test_lost_while_opening() -> None:
    harness = Harness()
    harness.topic.holds = True
    opening = asyncio.create_task(harness.open())
    await let_callbacks_run()
    harness.producer.lose()
    with pytest.raises(ConnectionLostError):
        await opening


async def test_unreadable_entries_are_passed_over() -> None:
    harness = Harness()
    harness.topic.write(b"\xff\xff\xff\xff", 1)
    await harness.open()
    assert harness.replayed == [BARRIER]


async def test_waiting_for_the_loss_may_be_cancelled() -> None:
    harness = await Harness().open()
    harness.topic.holds = True
    waiting = asyncio.create_task(harness.log.wait_lost())
    harness.append("in flight", (b"k", b"v"))
    await let_callbacks_run()
    harness.append("queued", (b"k", b"v"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    harness.producer.lose(RequestTimeoutError("slow"))
    await let_callbacks_run()
    assert harness.answers == [(name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in ("in flight", "queued")]


async def test_closing_without_an_answer_of_the_broker_answers_all() -> None:
    harness = await Harness().open()
    harness.topic.holds = harness.topic.hangs = True
    harness.append("in flight", (b"k", b"v"))
    await let_callbacks_run()
    harness.append("queued", (b"k", b"v"))
    closing = asyncio.create_task(harness.log.close())
    await let_callbacks_run()
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await let_callbacks_run()
    assert harness.answers == [(name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in ("in flight", "queued")]


async def test_an_entry_that_is_never_confirmed_loses_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "STALLED_S", 0.001)
    harness = await Harness().open()
    harness.topic.holds = True
    harness.append("a", (b"k", b"v"))
    assert isinstance(await asyncio.wait_for(harness.log.wait_lost(), 10), RequestTimeoutError)
    assert harness.answers == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_a_defect_in_one_answer_does_not_keep_the_others() -> None:
    harness = await Harness().open()

    def fails(error: ErrorCode, now_ms: int) -> None:
        raise KeyError("defect")

    harness.log.append([(b"k", b"v")], fails)
    harness.append("next", (b"k", b"v"))
    await let_callbacks_run()
    assert harness.answers == [("next", ErrorCode.NONE)]
