"""Offsets that are committed in transactions: while they are pending, when the transaction ends, and other events
between."""

from typing import Any

import pytest

from coordinator.group.messages import (
    EndOfTransaction,
    FetchedOffset,
    OffsetToCommit,
    OpenTransaction,
)
from coordinator.group.offsets.group_offsets import METADATA_MAX_CHARS
from coordinator.group.offsets.pending_offsets import PendingOffsets
from coordinator.group.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from coordinator.group.records.transactional_offset import (
    MarkerEpochKey,
    MarkerEpochValue,
    TransactionalOffsetKey,
    TransactionalOffsetValue,
)
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, Parked, reloaded, subscription
from tests.unit.coordinator.group.offsets.transactional_offsets import (
    NEW_ID,
    OLD_ID,
    RETENTION_MS,
    T0,
    T1,
    U0,
    UNSTABLE,
    V1,
    V2,
    delete,
    delete_group,
    fetch,
)


def test_an_offset_counts_when_its_transaction_is_committed() -> None:
    h = Harness()
    h.commit(3)
    assert h.commit_in_transaction(7).answer == {T0: ErrorCode.NONE}
    assert fetch(h, T0) == fetch(h) == {T0: FetchedOffset(3)}
    assert fetch(h, T0, stable=True) == fetch(h, stable=True) == {T0: UNSTABLE}
    assert h.end_transaction().answer is ErrorCode.NONE
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}
    assert h.changes == [("g", {T0: 3}), ("g", {T0: 7})]
    key, value = TransactionalOffsetKey(7, "g", "t", 0), OffsetCommitValue(7, "", h.now_ms)
    assert h.log.decoded()[1:] == [
        (key, TransactionalOffsetValue(0, 1, False, value)),
        (OffsetCommitKey("g", "t", 0), value),
        (key, None),
        (MarkerEpochKey(7), MarkerEpochValue(1, h.now_ms)),
    ]


def test_an_aborted_transaction_leaves_the_offset_before_it() -> None:
    h = Harness()
    h.commit(3)
    h.commit_in_transaction(7)
    assert h.end_transaction(committed=False).answer is ErrorCode.NONE
    assert fetch(h, T0, stable=True) == fetch(reloaded(h), T0, stable=True) == {T0: FetchedOffset(3)}
    assert h.changes == [("g", {T0: 3})]


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_in_all_groups_of_the_partition(committed: bool) -> None:
    h = Harness()
    h.commit_in_transaction(7)
    h.commit_in_transaction(8, group="other")
    h.commit_in_transaction(9, group="third", producer_id=8)
    h.end_transaction(committed)
    assert fetch(h, T0) == {T0: FetchedOffset(7 if committed else -1)}
    assert fetch(h, T0, group="other", stable=True) == {T0: FetchedOffset(8 if committed else -1)}
    assert fetch(h, T0, group="third", stable=True) == {T0: UNSTABLE}


def test_all_fields_come_back() -> None:
    h = Harness()
    h.commit_in_transaction(offsets={T0: OffsetToCommit(7, 3, "meta", topic_id=OLD_ID), U0: OffsetToCommit(8)})
    h = reloaded(h)
    h.end_transaction()
    for each in (h, reloaded(h)):
        assert fetch(each) == {T0: FetchedOffset(7, 3, "meta", topic_id=OLD_ID), U0: FetchedOffset(8)}


def test_the_end_is_answered_when_it_is_durable() -> None:
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    h.finish_all()
    first, retry, other = h.end_transaction(), h.end_transaction(), h.end_transaction(coordinator_epoch=2)
    assert not first.answers
    assert other.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
    h.finish_all()
    assert first.answer is retry.answer is ErrorCode.NONE
    assert h.end_transaction().answer is ErrorCode.NONE, "nothing is open"
    assert not h.log.waiting


def test_an_end_that_the_log_refuses_comes_again() -> None:
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    h.finish_all()
    refused = h.end_transaction()
    h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refused.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
    h.end_transaction()
    h.finish_all()
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}


def test_a_refused_append_leaves_nothing_open() -> None:
    h = Harness(auto=False)
    parked = h.commit_in_transaction(7)
    h.finish_all(ErrorCode.MESSAGE_TOO_LARGE)
    assert parked.answer == {T0: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset()}


def test_an_end_waits_for_what_decides_it() -> None:
    """The client had no response, but the transaction was committed: the append of the offset may still fail."""
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    assert h.end_transaction(transaction_version=V2, producer_epoch=1).answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert h.end_transaction(transaction_version=V2, producer_epoch=1).answer is ErrorCode.NONE
    assert fetch(h, T0) == {T0: FetchedOffset()}


def test_an_abort_takes_what_is_under_way_with_it() -> None:
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    aborted = h.end_transaction(committed=False)
    h.finish_all()
    assert aborted.answer is ErrorCode.NONE
    assert fetch(h, T0, stable=True) == fetch(reloaded(h), T0, stable=True) == {T0: FetchedOffset()}


def test_what_is_open_is_shown() -> None:
    h = Harness()
    h.end_transaction(coordinator_epoch=4)
    h.commit_in_transaction(1)
    h.commit_in_transaction(1, producer_id=8, producer_epoch=2)
    h.now_ms += 5
    h.commit_in_transaction(2, group="other")
    h.commit(3)
    expected = [OpenTransaction(7, 0, 4, 1, h.now_ms), OpenTransaction(8, 2, -1, 2, h.now_ms - 5)]
    assert h.coordinator.open_transactions() == reloaded(h).coordinator.open_transactions() == expected
    h.end_transaction(coordinator_epoch=4)
    assert h.coordinator.open_transactions() == expected[1:]
    h.coordinator.resign(h.now_ms)
    assert h.coordinator.open_transactions() is None


def test_what_is_open_is_shown_without_a_look_at_each_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be hundreds of thousands, and clients may ask (DescribeProducers)."""
    h = Harness()
    h.commit_in_transaction(offsets={TopicPartition("t", number): OffsetToCommit(1) for number in range(100)})
    looked_at: list[TransactionalOffsetKey] = []
    find = PendingOffsets.find

    def counted(pending: PendingOffsets, key: TransactionalOffsetKey) -> TransactionalOffsetValue | None:
        looked_at.append(key)
        return find(pending, key)

    monkeypatch.setattr(PendingOffsets, "find", counted)
    assert h.coordinator.open_transactions() == [OpenTransaction(7, 0, -1, 1, h.now_ms)]
    assert len(looked_at) == 1


class TestMembers:
    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({}, ErrorCode.NONE),
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "m"}, ErrorCode.NONE),
        ],
    )
    def test_without_a_group(self, changes: dict[str, Any], error: ErrorCode) -> None:
        assert Harness().commit_in_transaction(**changes).answer == {T0: error}

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({}, ErrorCode.NONE),
            ({"member_id": "nobody", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "LEADER", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "LEADER"}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "LEADER", "generation": 1}, ErrorCode.NONE),
            ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_of_a_classic_group(self, changes: dict[str, Any], error: ErrorCode) -> None:
        h = Harness()
        [leader] = h.stable()
        if changes.get("member_id") == "LEADER":
            changes = changes | {"member_id": leader}
        assert h.commit_in_transaction(**changes).answer == {T0: error}

    def test_a_static_member_that_another_has_replaced(self) -> None:
        h = Harness()
        old = h.first_join(group_instance_id="i").member_id
        h.join(group_instance_id="i")
        commit = h.commit_in_transaction(member_id=old, generation=1, group_instance_id="i")
        assert commit.answer == {T0: ErrorCode.FENCED_INSTANCE_ID}

    def test_while_the_leader_assigns(self) -> None:
        h = Harness()
        leader = h.first_join().member_id
        assert h.commit_in_transaction(member_id=leader, generation=1).answer == {T0: ErrorCode.NONE}

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"member_id": "m", "generation": 1}, ErrorCode.NONE),
            ({"member_id": "m", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "m", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "n", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_of_a_consumer_group(self, changes: dict[str, Any], error: ErrorCode) -> None:
        h = Harness()
        assert h.consumer_heartbeat("m").answer.member_epoch == 1
        assert h.commit_in_transaction(**changes).answer == {T0: error}

    def test_metadata_is_limited(self) -> None:
        h = Harness()
        offsets = {T0: OffsetToCommit(1, metadata="x" * (METADATA_MAX_CHARS + 1)), T1: OffsetToCommit(2)}
        answer = h.commit_in_transaction(offsets=offsets).answer
        assert answer == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}


class TestOffsetsThatGo:
    def test_a_group_is_listed_with_only_open_offsets(self) -> None:
        h = Harness()
        h.commit_in_transaction()
        for each in (h, reloaded(h)):
            [listed] = each.coordinator.list_groups().groups
            assert (listed.group_id, listed.state, listed.protocol_type) == ("g", "Empty", "")
            assert each.coordinator.describe_group("g").state == "Empty"
            assert fetch(each) == {}

    def test_neither_offset_nor_group_expires_while_it_is_open(self) -> None:
        h = Harness()
        h.commit(3)
        h.commit_in_transaction(7)
        h.commit_in_transaction(7, group="other")
        h.advance(2 * RETENTION_MS)
        assert fetch(h) == {T0: FetchedOffset(3)}
        assert h.coordinator.group_ids() == ["g", "other"]
        h.end_transaction(committed=False)
        h.advance(CONFIG.offsets_retention_check_interval_ms)
        assert h.coordinator.group_ids() == []

    def test_a_deleted_offset_is_not_committed_later(self) -> None:
        h = Harness()
        h.commit(3)
        h.commit_in_transaction(7)
        h.commit_in_transaction(8, partition=1)
        assert delete(h, T0) is ErrorCode.NONE
        assert fetch(h, T0, T1, stable=True) == {T0: FetchedOffset(), T1: UNSTABLE}
        h = reloaded(h)
        h.end_transaction()
        assert fetch(h) == {T1: FetchedOffset(8)}

    def test_the_mirror_does_not_hear_of_what_never_counted(self) -> None:
        h = Harness()
        h.commit_in_transaction(7)
        assert delete(h, T0) is ErrorCode.NONE
        assert all(not offsets for _, offsets in h.changes)

    def test_a_deleted_group_stays_deleted(self) -> None:
        h = Harness()
        h.commit(3)
        h.commit_in_transaction(7)
        assert delete_group(h) is ErrorCode.NONE
        h.commit(1, partition=1)
        h.end_transaction()
        assert fetch(h) == fetch(reloaded(h)) == {T1: FetchedOffset(1)}

    def test_a_group_of_very_many_offsets(self) -> None:
        h = Harness()
        h.commit(offsets={TopicPartition("t", n): OffsetToCommit(n) for n in range(3_000)})
        h.commit_in_transaction(7)
        assert delete_group(h) is ErrorCode.NONE
        h.end_transaction()
        assert reloaded(h).coordinator.group_ids() == h.coordinator.group_ids() == []

    def test_a_topic_made_anew_keeps_its_own(self) -> None:
        h = Harness()
        h.commit_in_transaction(offsets={T0: OffsetToCommit(7, topic_id=OLD_ID)})
        h.commit_in_transaction(offsets={T1: OffsetToCommit(8, topic_id=NEW_ID)})
        h.forget("t", OLD_ID, h.now_ms + 1)
        h = reloaded(h)
        h.end_transaction()
        assert fetch(h) == {T1: FetchedOffset(8, topic_id=NEW_ID)}

    def test_the_old_topics_offset_goes_and_the_open_one_of_the_new_stays(self) -> None:
        h = Harness()
        h.commit(offsets={T0: OffsetToCommit(7, topic_id=OLD_ID)})
        h.commit_in_transaction(offsets={T0: OffsetToCommit(8, topic_id=NEW_ID)})
        h.forget("t", OLD_ID, h.now_ms + 1)
        assert fetch(h) == {}
        h.end_transaction()
        assert fetch(h) == {T0: FetchedOffset(8, topic_id=NEW_ID)}

    def test_a_group_that_changes_its_protocol_takes_them_along(self) -> None:
        h = Harness()
        h.commit_in_transaction(7)
        h.consumer_heartbeat("m")
        assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
        h.end_transaction()
        assert fetch(h, T0, stable=True) == fetch(reloaded(h), T0, stable=True) == {T0: FetchedOffset(7)}


def test_members_do_not_hinder_the_end() -> None:
    h = Harness()
    leader = h.first_join(protocols=[("range", subscription("t"))]).member_id
    h.commit_in_transaction(7, member_id=leader, generation=1)
    marker = EndOfTransaction(7, 0, 1, True, V1)
    h.coordinator.pause(h.now_ms)
    h.coordinator.resume(h.now_ms)
    parked = Parked[ErrorCode]()
    h.coordinator.end_transaction(marker, h.now_ms, parked)
    h.finish_all()
    assert parked.answer is ErrorCode.NONE
    assert fetch(h, T0) == {T0: FetchedOffset(7)}
