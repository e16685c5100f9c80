"""Offsets that are committed in transactions: until they end, when they do, and what else happens meanwhile."""

from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.messages import (
    DeleteOffsetsResponse,
    EndOfTransaction,
    FetchedOffset,
    FetchOffsetsRequest,
    OffsetToCommit,
    OpenTransaction,
    RefusedError,
    TransactionalCommitRequest,
)
from coordinator.group.offsets.transactions import MARKER_EPOCH_LIFE_MS
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

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
RETENTION_MS = CONFIG.offsets_retention_ms
V1, V2 = 1, 2


def fetch(h: Harness, *partitions: TopicPartition, stable: bool = False, group: str = "g") -> dict[TopicPartition, Any]:
    response = h.coordinator.fetch_offsets(FetchOffsetsRequest(group, partitions or None, stable))
    assert response.error is ErrorCode.NONE
    return dict(response.offsets)


def delete(h: Harness, *partitions: TopicPartition) -> ErrorCode:
    parked = Parked[DeleteOffsetsResponse]()
    h.coordinator.delete_offsets("g", partitions, h.now_ms, parked)
    h.settle()
    return parked.answer.error


def delete_group(h: Harness) -> ErrorCode:
    parked: Parked[Any] = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, parked)
    h.settle()
    error: ErrorCode = parked.answer["g"]
    return error


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
    h.settle()
    first, retry, other = h.end_transaction(), h.end_transaction(), h.end_transaction(coordinator_epoch=2)
    assert not first.answers
    assert other.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
    h.settle()
    assert first.answer is retry.answer is ErrorCode.NONE
    assert h.end_transaction().answer is ErrorCode.NONE, "nothing is open"
    assert not h.log.waiting


def test_an_end_that_the_log_refuses_comes_again() -> None:
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    h.settle()
    refused = h.end_transaction()
    h.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refused.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
    h.end_transaction()
    h.settle()
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}


def test_a_refused_append_leaves_nothing_open() -> None:
    h = Harness(auto=False)
    parked = h.commit_in_transaction(7)
    h.settle(ErrorCode.MESSAGE_TOO_LARGE)
    assert parked.answer == {T0: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset()}


def test_an_end_waits_for_what_decides_it() -> None:
    """The transaction was committed though its client had no answer: the offset may be refused yet."""
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    assert h.end_transaction(transaction_version=V2, producer_epoch=1).answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert h.end_transaction(transaction_version=V2, producer_epoch=1).answer is ErrorCode.NONE
    assert fetch(h, T0) == {T0: FetchedOffset()}


def test_an_abort_takes_what_is_under_way_with_it() -> None:
    h = Harness(auto=False)
    h.commit_in_transaction(7)
    aborted = h.end_transaction(committed=False)
    h.settle()
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


class TestTheLatestWins:
    """KAFKA-5247."""

    def test_a_commit_behind_that_of_the_transaction(self) -> None:
        h = Harness()
        h.commit_in_transaction(7)
        h.commit(3)
        for each in (h, reloaded(h)):
            assert fetch(each, T0, stable=True) == {T0: UNSTABLE}
            each.end_transaction()
            assert fetch(each, T0, stable=True) == {T0: FetchedOffset(3)}

    def test_a_commit_between_two_of_the_transaction(self) -> None:
        h = Harness()
        h.commit_in_transaction(7)
        h.commit(3)
        h.commit_in_transaction(8)
        for each in (h, reloaded(h)):
            each.end_transaction()
            assert fetch(each, T0) == {T0: FetchedOffset(8)}

    @pytest.mark.parametrize("first", [7, 8])
    def test_of_two_transactions(self, first: int) -> None:
        h = Harness()
        h.commit_in_transaction(60, producer_id=7)
        h.commit_in_transaction(70, producer_id=7)
        h = reloaded(h)
        h.commit_in_transaction(80, producer_id=8)
        for producer_id in (first, 15 - first):
            h = reloaded(h)
            h.end_transaction(producer_id=producer_id)
        assert fetch(h, T0, stable=True) == {T0: FetchedOffset(80)}

    @pytest.mark.parametrize("is_committed_between", [True, False])
    @pytest.mark.parametrize("cut", range(7))
    def test_an_end_that_is_torn_is_completed_when_the_marker_comes_again(
        self, cut: int, is_committed_between: bool
    ) -> None:
        """Two transactions have an offset of T0, the later one ends first; all that is known of its end is a part."""
        h = Harness(auto=False)
        h.commit_in_transaction(80, producer_id=8)
        h.commit_in_transaction(offsets={T0: OffsetToCommit(70), T1: OffsetToCommit(71)})
        h.settle()
        h.end_transaction()
        [(records, _)] = h.log.waiting
        assert len(records) == 6
        h.log.durable += records[:cut]
        h = reloaded(h)
        if is_committed_between:
            h.commit(3)
        h.end_transaction()
        h.end_transaction(producer_id=8)
        for each in (h, reloaded(h)):
            expected = {T0: FetchedOffset(3 if is_committed_between else 70), T1: FetchedOffset(71)}
            assert fetch(each, T0, T1, stable=True) == expected

    def test_a_commit_that_was_refused_supersedes_nothing(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(7)
        h.settle()
        h.commit(3)
        ended = h.end_transaction(producer_epoch=1, transaction_version=V2)
        assert ended.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER, "which is the latest is not known yet"
        h.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
        h.end_transaction()
        h.settle()
        assert fetch(h, T0) == {T0: FetchedOffset(7)}

    def test_commits_while_the_transaction_ends_keep_their_order(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(offsets={T0: OffsetToCommit(7), T1: OffsetToCommit(7)})
        h.settle()
        ended = h.end_transaction()
        first = h.commit(offsets={T0: OffsetToCommit(1), U0: OffsetToCommit(1)})
        second = h.commit(offsets={U0: OffsetToCommit(2)})
        h.settle()
        assert ended.answer is ErrorCode.NONE
        assert first.answer == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
        assert second.answer == {U0: ErrorCode.NONE}
        expected = {T0: FetchedOffset(1), T1: FetchedOffset(7), U0: FetchedOffset(2)}
        assert fetch(h) == fetch(reloaded(h)) == expected

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_commit_while_the_transaction_ends_leaves_nothing_open(self, committed: bool) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(7)
        h.commit(2)
        h.settle()
        h.end_transaction(committed)
        h.commit(1)
        h.settle()
        assert fetch(h, T0, stable=True) == fetch(reloaded(h), T0, stable=True) == {T0: FetchedOffset(1)}

    def test_a_commit_that_waits_for_an_end_is_answered_when_the_coordinator_resigns(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(7)
        h.settle()
        ended, commit = h.end_transaction(), h.commit(1)
        h.coordinator.resign(h.now_ms)
        h.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert ended.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert commit.answer == {T0: ErrorCode.NOT_COORDINATOR}
        assert h.end_transaction().answer is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestLateMarkers:
    def test_of_an_earlier_coordinator(self) -> None:
        """The later one has ended the transaction; the producer's next has the same epoch."""
        h = Harness()
        h.commit_in_transaction(7)
        h.end_transaction(coordinator_epoch=6)
        h.commit_in_transaction(8)
        h = reloaded(h)
        assert h.end_transaction(coordinator_epoch=5).answer is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
        h.end_transaction(coordinator_epoch=6)
        assert fetch(h, T0, stable=True) == {T0: FetchedOffset(8)}

    def test_though_the_later_coordinator_found_nothing_open(self) -> None:
        h = Harness()
        h.end_transaction(coordinator_epoch=6)
        h.commit_in_transaction(8)
        assert reloaded(h).end_transaction(coordinator_epoch=5).answer is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_of_an_earlier_epoch(self) -> None:
        h = Harness()
        h.commit_in_transaction(7, producer_epoch=3)
        assert h.end_transaction(producer_epoch=2).answer is ErrorCode.INVALID_PRODUCER_EPOCH
        assert fetch(h, T0, stable=True) == {T0: UNSTABLE}
        assert h.end_transaction(False, producer_epoch=4).answer is ErrorCode.NONE, "the producer was fenced"

    def test_of_the_transaction_before_when_each_has_its_epoch(self) -> None:
        """KAFKA-19999: the marker has the epoch of the transaction that follows; a retry without one is none the less
        answered."""
        h = Harness()
        h.commit_in_transaction(7, producer_epoch=3)
        for _ in range(2):
            assert h.end_transaction(producer_epoch=4, transaction_version=V2).answer is ErrorCode.NONE
        h.commit_in_transaction(8, producer_epoch=4)
        late = reloaded(h).end_transaction(producer_epoch=4, transaction_version=V2)
        assert late.answer is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_what_is_known_of_coordinators_goes_after_a_day(self) -> None:
        h = Harness()
        h.end_transaction()
        before = len(h.log.durable)
        h.end_transaction()
        assert len(h.log.durable) == before, "it is written once"
        h.advance(MARKER_EPOCH_LIFE_MS - 1)
        assert reloaded(h).end_transaction(coordinator_epoch=0).answer is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        h.advance(CONFIG.offsets_retention_check_interval_ms)
        assert h.log.decoded()[-1] == (MarkerEpochKey(7), None)


class TestVerification:
    def request(self, **changes: Any) -> TransactionalCommitRequest:
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "offsets": {T0: OffsetToCommit(1)}}
        return TransactionalCommitRequest("g", **(fields | changes))

    def test_of_the_first_commit_of_a_transaction_only(self) -> None:
        h = Harness()
        assert h.coordinator.start_verification("g", 7, 0).is_needed
        h.commit_in_transaction()
        for each in (h, reloaded(h)):
            assert not each.coordinator.start_verification("other", 7, 0).is_needed
            assert each.coordinator.start_verification("g", 7, 1).is_needed
            each.end_transaction()
            assert each.coordinator.start_verification("g", 7, 0).is_needed

    @pytest.mark.parametrize("again", [True, False])
    def test_once_more_if_it_is_doubted(self, again: bool) -> None:
        h = Harness()
        h.commit_in_transaction()
        h.coordinator.doubt_transaction(7)
        assert h.coordinator.start_verification("g", 7, 0).is_needed
        assert h.coordinator.is_doubted(7)
        if again:
            h.commit_in_transaction()
        else:
            h.end_transaction()
        assert not h.coordinator.is_doubted(7)

    @pytest.mark.parametrize(
        ("marker", "error"),
        [
            ({}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ({"producer_epoch": 1}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ({"producer_epoch": 1, "transaction_version": V2}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            # Of the transaction before, which the verification waited for.
            ({"transaction_version": V2}, ErrorCode.NONE),
            ({"producer_id": 8}, ErrorCode.NONE),
        ],
    )
    def test_a_marker_voids_it(self, marker: dict[str, int], error: ErrorCode) -> None:
        h = Harness()
        verification = h.coordinator.start_verification("g", 7, 0)
        assert h.end_transaction(False, **marker).answer is ErrorCode.NONE
        parked: Parked[Any] = Parked()
        h.coordinator.commit_in_transaction(self.request(), verification, h.now_ms, parked)
        h.settle()
        assert parked.answer == {T0: error}

    def test_by_another_coordinator_it_is_worth_nothing(self) -> None:
        h = Harness()
        verification = h.coordinator.start_verification("g", 7, 0)
        parked: Parked[Any] = Parked()
        reloaded(h).coordinator.commit_in_transaction(self.request(), verification, h.now_ms, parked)
        assert parked.answer == {T0: ErrorCode.NOT_COORDINATOR}

    def test_not_while_the_transaction_ends(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(7)
        h.settle()
        h.end_transaction()
        assert h.commit_in_transaction(8).answer == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}

    def test_a_zombie(self) -> None:
        h = Harness()
        h.commit_in_transaction(7, producer_epoch=3)
        assert h.commit_in_transaction(8, producer_epoch=2).answer == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}

    @pytest.mark.parametrize(
        ("group", "phase", "error"),
        [
            ("", "active", ErrorCode.INVALID_GROUP_ID),
            ("g", "loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ("g", "resigned", ErrorCode.NOT_COORDINATOR),
        ],
    )
    def test_refused(self, group: str, phase: str, error: ErrorCode) -> None:
        h = Harness(load=phase != "loading")
        if phase == "resigned":
            h.coordinator.resign(h.now_ms)
        with pytest.raises(RefusedError) as refused:
            h.coordinator.start_verification(group, 7, 0)
        assert refused.value.error is error


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
        h = Harness(GroupConfig(offset_metadata_max_chars=1))
        offsets = {T0: OffsetToCommit(1, metadata="xx"), T1: OffsetToCommit(2)}
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
    h.settle()
    assert parked.answer is ErrorCode.NONE
    assert fetch(h, T0) == {T0: FetchedOffset(7)}
