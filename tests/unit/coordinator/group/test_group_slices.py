"""Work on all groups is done in slices. The test counts the work of a step, not its time."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from coordinator import slices
from coordinator.group import loading
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.protocol import ClassicProtocol
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest
from coordinator.group.messages import (
    DeleteOffsetsResponse,
    OffsetToCommit,
)
from coordinator.group.offsets import commands, pending_offsets
from coordinator.group.offsets import group_offsets as offsets
from coordinator.group.offsets.transactions import MARKER_EPOCH_LIFE_MS
from coordinator.timers import AT_ONCE
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, SESSION_MS, Harness, Parked, reloaded

SLICE, GROUPS = 10, 100


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slices, offsets, commands, pending_offsets):
        monkeypatch.setattr(module, "SLICE_UNITS", SLICE)


def with_groups() -> Harness:
    """Groups with an offset each, and one with many."""
    h = Harness()
    for number in range(GROUPS):
        h.commit(1, group=f"g{number}")
    h.commit(offsets={TopicPartition("t", number): OffsetToCommit(1) for number in range(GROUPS)}, group="large")
    return h


def records_by_step(h: Harness) -> Iterator[int]:
    while h.coordinator.has_work:
        before = len(h.log.waiting)
        h.coordinator.work()
        yield sum(len(records) for records, _ in h.log.waiting[before:])


def test_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    old = with_groups()
    h = Harness(load=False)
    for record in old.log.durable:
        h.coordinator.replay(*record)
    units: list[int] = []

    def counting(work: Any) -> Any:
        def counted(*args: Any) -> Any:
            units[-1] += 1
            return work(*args)

        return counted

    monkeypatch.setattr(loading, "ClassicGroup", counting(ClassicGroup))
    monkeypatch.setattr(ClassicProtocol, "restart_timers", counting(ClassicProtocol.restart_timers))
    units.append(0)
    for _ in h.coordinator.finish_loading(h.now_ms):
        assert h.coordinator.list_groups().error, "it serves when all is there"
        units.append(0)
    assert sum(units) == 2 * (GROUPS + 1)
    assert max(units) <= 2 * SLICE
    assert len(h.coordinator.group_ids()) == GROUPS + 1


def test_expiry() -> None:
    h = with_groups()
    h.auto = False
    h.now_ms += CONFIG.offsets_retention_ms + CONFIG.offsets_retention_check_interval_ms
    h.coordinator.tick(h.now_ms)
    assert h.log.waiting == [], "the timer only starts it"
    steps = [*records_by_step(h)]
    assert sum(steps) == 2 * GROUPS
    assert max(steps) <= 2 * SLICE
    assert h.coordinator.group_ids() == []


def test_old_markers() -> None:
    h = Harness()
    for number in range(GROUPS):
        h.end_transaction(producer_id=number)
    h.auto = False
    h.now_ms += MARKER_EPOCH_LIFE_MS + CONFIG.offsets_retention_check_interval_ms
    h.coordinator.tick(h.now_ms)
    assert h.log.waiting == [], "the timer only starts it"
    steps = [*records_by_step(h)]
    assert sum(steps) == GROUPS
    assert max(steps) <= SLICE


def test_members_that_are_silent_at_the_same_time() -> None:
    """As after a change of the coordinator, which lets all sessions start at the same time."""
    h = Harness()
    count = 3 * AT_ONCE
    for number in range(count):
        h.consumer_heartbeat(f"m{number}")
    h.now_ms += CONFIG.consumer_session_timeout_ms
    left = [count]
    while left[-1]:
        deadline_ms = h.coordinator.next_deadline_ms()
        assert deadline_ms is not None and deadline_ms <= h.now_ms
        h.coordinator.tick(h.now_ms)
        h.finish_all()
        left.append(len(h.coordinator.describe_consumer_group("g").members))
        assert left[-2] - left[-1] <= AT_ONCE
    assert len(left) <= 5


def test_deleted_topics() -> None:
    h = with_groups()
    h.auto = False
    h.forget("t", b"", h.now_ms + 1, finish=False)
    h.coordinator.work()
    h.forget("u", b"", h.now_ms + 1, finish=False)
    steps = [*records_by_step(h)]
    assert not any(map(h.coordinator.committed, h.coordinator.group_ids()))
    assert max(steps) <= 2 * SLICE


def with_open_transactions() -> Harness:
    """One with many offsets, and many with an offset each."""
    h = Harness()
    h.commit_in_transaction(offsets={TopicPartition("t", number): OffsetToCommit(1) for number in range(GROUPS)})
    for number in range(GROUPS):
        h.commit_in_transaction(group=f"g{number}", producer_id=100 + number)
    h.auto = False
    return h


def test_deleted_topics_of_open_transactions() -> None:
    h = with_open_transactions()
    h.forget("t", b"", h.now_ms + 1, finish=False)
    steps = [*records_by_step(h)]
    assert sum(steps) == 2 * GROUPS
    assert max(steps) <= 2 * SLICE
    h.finish_all()
    assert h.coordinator.open_transactions() == []
    assert reloaded(h).coordinator.open_transactions() == []


def test_offsets_of_a_deleted_topic_that_are_committed_meanwhile_go_too() -> None:
    h = with_open_transactions()
    h.forget("t", b"", h.now_ms + 1, finish=False)
    h.coordinator.work()
    h.auto = True
    h.end_transaction()
    h.finish_all()
    for each in (h, reloaded(h)):
        assert not any(map(each.coordinator.committed, each.coordinator.group_ids()))


def test_a_deleted_group_with_offsets_in_transactions() -> None:
    h = with_open_transactions()
    deleted: Parked[Mapping[str, ErrorCode]] = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, deleted)
    assert len(h.log.waiting) == 0
    steps = [*records_by_step(h)]
    assert sum(steps) == GROUPS
    assert max(steps) <= SLICE
    h.finish_all()
    assert deleted.answer == {"g": ErrorCode.NONE}
    for each in (h, reloaded(h)):
        assert "g" not in each.coordinator.group_ids()


def test_a_new_group_of_the_same_name_gets_nothing_of_the_transactions_of_the_deleted_one() -> None:
    h = with_open_transactions()
    deleted: Parked[Mapping[str, ErrorCode]] = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, deleted)
    h.commit(5, partition=1)
    h.commit_in_transaction(7, partition=GROUPS - 1)
    ended = h.end_transaction()
    h.finish_all()
    if ended.answer:  # it was cut short, and is sent again
        ended = h.end_transaction()
        h.finish_all()
    assert (deleted.answer, ended.answer) == ({"g": ErrorCode.NONE}, ErrorCode.NONE)
    for each in (h, reloaded(h)):
        assert {key.partition: value.offset for key, value in each.coordinator.committed("g").items()} == {
            1: 5, GROUPS - 1: 7,
        }  # fmt: skip


def test_a_defect_in_one_job_does_not_stop_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    h = with_groups()
    h.auto = False

    def fails(*args: object) -> list[TopicPartition]:
        raise KeyError("defect")

    with monkeypatch.context() as patch:
        patch.setattr(offsets.GroupOffsets, "of_deleted", fails)
        h.forget("t", b"", h.now_ms + 1, finish=False)
        with pytest.raises(KeyError):
            h.coordinator.work()
    h.coordinator.work()
    assert not h.coordinator.has_work
    h.forget("t", b"", h.now_ms + 1)
    assert not any(map(h.coordinator.committed, h.coordinator.group_ids()))


def test_a_coordinator_that_resigns_lets_go_of_its_groups_little_by_little() -> None:
    h = with_groups()
    h.coordinator.resign(h.now_ms)
    assert h.coordinator.group_ids() == []
    assert len([*records_by_step(h)]) >= GROUPS // SLICE


def test_offsets_of_a_deleted_topic_go_though_the_group_changes_its_protocol_meanwhile() -> None:
    h = with_groups()
    h.auto = False
    h.forget("t", b"", h.now_ms + 1, finish=False)
    while len(h.coordinator.committed("large")) == GROUPS:
        h.coordinator.work()
    assert h.coordinator.committed("large"), "in the midst of it"
    request = ConsumerHeartbeatRequest(
        "large", "", 0, client_id="c", client_host="/127.0.0.1", rebalance_timeout_ms=1_000,
        subscribed_topic_names=["u"], owned={},
    )  # fmt: skip
    h.coordinator.consumer_heartbeat(request, h.now_ms, lambda response: None)
    assert h.coordinator.has_work
    h.finish_all()
    assert h.coordinator.describe_consumer_group("large").members
    assert not h.coordinator.committed("large")


def test_members_have_their_full_time_however_long_loading_takes() -> None:
    old = with_groups()
    joining = old.join()
    old.advance(0)
    member_id = joining.answer.member_id
    old.sync(member_id, 1, {member_id: b""})
    h = Harness(load=False)
    for record in old.log.durable:
        h.coordinator.replay(*record)
    for _ in h.coordinator.finish_loading(h.now_ms):
        h.now_ms += SESSION_MS
        assert h.coordinator.next_deadline_ms() is None
        h.coordinator.tick(h.now_ms)
    h.coordinator.resume(h.now_ms)
    h.advance(SESSION_MS - 1)
    assert h.heartbeat(member_id, 1) is ErrorCode.NONE


def delete_large(h: Harness) -> Parked[Mapping[str, ErrorCode]]:
    h.auto = False
    deleted: Parked[Mapping[str, ErrorCode]] = Parked()
    h.coordinator.delete_groups(["large"], h.now_ms, deleted)
    return deleted


def appended(h: Harness) -> list[int]:
    while h.coordinator.has_work:
        h.coordinator.work()
    return [len(records) for records, _ in h.log.waiting]


def test_a_group_with_many_offsets_is_deleted_in_slices() -> None:
    h = with_groups()
    deleted = delete_large(h)
    assert "large" not in h.coordinator.group_ids(), "from now on"
    sizes = appended(h)
    assert max(sizes) <= SLICE and sum(sizes) == GROUPS
    while h.log.waiting:
        assert not deleted.answers
        h.log.finish_one(h.now_ms)
    assert deleted.answer == {"large": ErrorCode.NONE}
    assert "large" not in reloaded(h).coordinator.group_ids()


def test_a_group_made_anew_keeps_what_it_commits_while_the_old_one_goes() -> None:
    h = with_groups()
    delete_large(h)
    kept = {TopicPartition("t", number): OffsetToCommit(7) for number in (0, GROUPS - 1)}
    h.commit(offsets=kept, group="large")
    h.finish_all()
    for coordinator in (h.coordinator, reloaded(h).coordinator):
        assert {each: value.offset for each, value in coordinator.committed("large").items()} == dict.fromkeys(kept, 7)


@pytest.mark.parametrize("gone", [False, True])
def test_a_refused_commit_of_the_group_made_anew_does_not_bring_the_old_offset_back(gone: bool) -> None:
    """The deletion had left that offset to the commit, whose record was to follow it."""
    h = with_groups()
    deleted = delete_large(h)
    refused = h.commit(7, partition=GROUPS - 1, group="large")
    appended(h)
    h.log.finish_one(h.now_ms, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refused.answer == {TopicPartition("t", GROUPS - 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    if gone:
        h.coordinator.resign(h.now_ms)
    h.finish_all()
    assert deleted.answer == {"large": ErrorCode.NOT_COORDINATOR if gone else ErrorCode.NONE}
    assert bool(reloaded(h).coordinator.committed("large")) == gone


def test_a_log_without_room_keeps_no_offset_of_a_deleted_group() -> None:
    """It refuses the commits of a whole slice of the old offsets, and nothing that the deletion needs."""
    h = with_groups()
    deleted = delete_large(h)
    again = {TopicPartition("t", number): OffsetToCommit(7) for number in range(GROUPS - SLICE, GROUPS)}
    h.commit(offsets=again, group="large")
    h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert deleted.answer == {"large": ErrorCode.NONE}
    assert not reloaded(h).coordinator.committed("large")


def test_a_deletion_does_not_remove_a_commit_that_ends_after_its_coordinator_has_resigned() -> None:
    h = with_groups()
    delete_large(h)
    h.commit(7, partition=GROUPS - 1, group="large")
    appended(h)
    h.coordinator.resign(h.now_ms)
    h.finish_all()
    assert reloaded(h).coordinator.committed("large")[TopicPartition("t", GROUPS - 1)].offset == 7


def test_a_deletion_that_is_interrupted_says_so() -> None:
    h = with_groups()
    deleted = delete_large(h)
    h.coordinator.work()
    h.coordinator.resign(h.now_ms)
    h.finish_all()
    assert deleted.answer == {"large": ErrorCode.NOT_COORDINATOR}
    successor = reloaded(h)
    again: Parked[Mapping[str, ErrorCode]] = Parked()
    successor.coordinator.delete_groups(["large"], h.now_ms, again)
    successor.finish_all()
    assert again.answer == {"large": ErrorCode.NONE}
    assert "large" not in reloaded(successor).coordinator.group_ids()


def test_a_deletion_fails_with_any_of_its_appends() -> None:
    h = with_groups()
    deleted = delete_large(h)
    appended(h)
    h.log.finish_one(h.now_ms, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    h.finish_all()
    assert deleted.answer == {"large": ErrorCode.NOT_COORDINATOR}


def test_many_offsets_are_deleted_in_slices() -> None:
    h = with_groups()
    h.auto = False
    named = [TopicPartition("t", number) for number in range(GROUPS - 1)]
    deleted: Parked[DeleteOffsetsResponse] = Parked()
    h.coordinator.delete_offsets("large", named, h.now_ms, deleted)
    assert max(appended(h)) <= SLICE
    h.finish_all()
    assert deleted.answer == DeleteOffsetsResponse(ErrorCode.NONE, dict.fromkeys(named, ErrorCode.NONE))
    assert [*h.coordinator.committed("large")] == [TopicPartition("t", GROUPS - 1)]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_is_committed_while_offsets_are_deleted_stays(in_transaction: bool) -> None:
    """As in Kafka, which deletes them at once."""
    h = with_groups()
    last = GROUPS - 1
    h.commit_in_transaction(5, partition=last - 1, group="large")
    h.auto = False
    named = [TopicPartition("t", number) for number in range(GROUPS)]
    h.coordinator.delete_offsets("large", named, h.now_ms, Parked[DeleteOffsetsResponse]())
    if in_transaction:
        h.commit_in_transaction(7, partition=last, group="large")
    else:
        h.commit(7, partition=last, group="large")
    h.finish_all()
    h.end_transaction()
    h.finish_all()
    assert {each: value.offset for each, value in reloaded(h).coordinator.committed("large").items()} == {
        TopicPartition("t", last): 7
    }
