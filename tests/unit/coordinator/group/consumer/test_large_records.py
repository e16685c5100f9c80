"""The log of a group takes records and appends of a bounded size. What is too large must not stop the other members."""

from typing import Any

import pytest

from coordinator.group.consumer import durable_writer
from coordinator.group.consumer.durable_writer import DurableWriter
from coordinator.log import Record
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, reloaded, subscription
from tests.unit.coordinator.memory_log import MemoryLog

LIMIT_BYTES = 10_000


def harness(limit_bytes: int = LIMIT_BYTES) -> Harness:
    h = Harness()
    h.log.max_record_bytes = limit_bytes
    return h


def is_stored(h: Harness) -> bool:
    return reloaded(h).coordinator.describe_consumer_group("g") == h.coordinator.describe_consumer_group("g")


@pytest.mark.parametrize(
    "large",
    [
        {"rack_id": "r" * LIMIT_BYTES},
        {"instance_id": "i" * LIMIT_BYTES},
        {"subscribed_topic_names": [f"{number:02}".ljust(249, "n") for number in range(50)]},
    ],
)
def test_a_member_that_no_record_can_hold_is_refused(large: dict[str, Any]) -> None:
    h = harness()
    h.consumer_heartbeat("m1")
    before = h.coordinator.describe_consumer_group("g")
    assert h.consumer_heartbeat("m2", **large).answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    if "instance_id" not in large:  # no member gets one later
        assert h.consumer_heartbeat("m1", 1, **large).answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.coordinator.describe_consumer_group("g") == before
    assert h.consumer_heartbeat("m1", 1, owned={}).answer.error is ErrorCode.NONE and is_stored(h)


def test_what_a_member_has_from_both_protocols_counts() -> None:
    """It has its rack from the consumer protocol, and keeps it when it comes back with the classic one."""
    h = harness()
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m2", rack_id="r" * 6_000)
    before = h.coordinator.describe_consumer_group("g")
    protocols = [("range", subscription("t")), ("other", bytes(6_000))]
    assert h.join("m2", protocols=protocols).answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.coordinator.describe_consumer_group("g") == before
    assert h.consumer_heartbeat("m1", 1, owned={}).answer.error is ErrorCode.NONE and is_stored(h)


def test_a_successor_that_no_record_can_hold_changes_nothing() -> None:
    h = harness()
    h.consumer_heartbeat("m1", instance_id="i")
    h.consumer_heartbeat("m1", -2, instance_id="i")
    before = h.coordinator.describe_consumer_group("g")
    late = h.consumer_heartbeat("m2", instance_id="i", rack_id="r" * LIMIT_BYTES)
    assert late.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.coordinator.describe_consumer_group("g") == before
    assert h.consumer_heartbeat("m2", instance_id="i").answer.error is ErrorCode.NONE and is_stored(h)


def test_a_classic_group_with_a_member_that_is_too_large_is_not_converted() -> None:
    h = harness()
    h.first_join(protocols=[("range", subscription("t")), ("other", bytes(LIMIT_BYTES))])
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_one_record_cannot_hold_stays_a_consumer_group() -> None:
    h = harness()
    h.consumer_heartbeat("m1")
    for member in ("c1", "c2", "c3", "c4"):
        protocols = [("range", subscription(*(f"{member}{number:02}".ljust(249, "n") for number in range(15))))]
        assert h.join(member, protocols=protocols).answer.error is ErrorCode.NONE
    assert h.consumer_heartbeat("m1", -1).answer.error is ErrorCode.NONE
    assert h.coordinator.describe_consumer_group("g").error is ErrorCode.NONE and is_stored(h)


def test_what_the_log_cannot_hold_does_not_stop_a_group() -> None:
    """For example, the topics of all members together: the next coordinator looks them up again."""
    h = harness(2_000)
    names = [f"{number:02}".ljust(249, "n") for number in range(10)]
    h.topics.counts |= dict.fromkeys(names, 1)
    for number in range(2):
        joined = h.consumer_heartbeat(f"m{number}", subscribed_topic_names=names[5 * number : 5 * number + 5])
        assert joined.answer.error is ErrorCode.NONE
    assert all(record.size_bytes <= 2_000 for record in h.log.durable)
    again = reloaded(h)
    assert again.consumer_heartbeat("m0", 1, owned={}).answer.error is ErrorCode.NONE
    assert len(frozenset[str]().union(*again.coordinator.subscription("g").names)) == 10


class Answers(list[ErrorCode]):
    def __call__(self, error: ErrorCode) -> None:
        self.append(error)


def records(*keys: str) -> list[Record]:
    return [Record(key.encode(), b"v" * 40) for key in keys]


def test_what_was_collected_is_appended_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is refused is written again, before all that is newer."""
    monkeypatch.setattr(durable_writer, "MAX_APPEND_BYTES", 100)
    log, first, second = MemoryLog(), Answers(), Answers()
    writer = DurableWriter(log)
    writer.write(records("a", "b", "c", "d", "e"), first)
    writer.write(records("f"), second)
    log.finish_one(0)
    assert log.durable == records("a", "b") and len(log.waiting) == 1 and not first
    assert writer.keys == {b"c", b"d", b"e", b"f"}
    log.finish_one(0, ErrorCode.REQUEST_TIMED_OUT)
    assert first == [ErrorCode.REQUEST_TIMED_OUT] and not second
    while log.waiting:
        assert len(log.waiting) == 1 and len(log.waiting[0][0]) <= 2
        log.finish_one(0)
    assert log.durable == records("a", "b", "c", "d", "e", "f")
    assert second == [ErrorCode.NONE] and not writer.keys


def test_a_writer_that_was_closed_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_writer, "MAX_APPEND_BYTES", 100)
    log, first, second, late = MemoryLog(), Answers(), Answers(), Answers()
    writer = DurableWriter(log)
    writer.write(records("a", "b", "c"), first)
    writer.write(records("d"), second)
    writer.close()
    writer.write(records("e"), late)
    assert writer.keys == {b"a", b"b", b"c", b"d"}
    while log.waiting:
        log.finish_one(0)
    assert log.durable == records("a", "b", "c", "d")
    assert (first, second, late) == ([ErrorCode.NONE], [ErrorCode.NONE], [ErrorCode.NOT_LEADER_OR_FOLLOWER])


def test_the_parts_that_are_left_are_appended_when_a_writer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_writer, "MAX_APPEND_BYTES", 100)
    log, only = MemoryLog(), Answers()
    writer = DurableWriter(log)
    writer.write(records("a", "b", "c"), only)
    writer.close()
    while log.waiting:
        log.finish_one(0)
    assert log.durable == records("a", "b", "c") and only == [ErrorCode.NONE]
