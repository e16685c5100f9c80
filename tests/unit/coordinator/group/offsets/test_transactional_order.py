"""Which of several transactional commits wins, which markers are too late, and what is verified first."""

from typing import Any

import pytest

from coordinator.group.messages import (
    FetchedOffset,
    OffsetToCommit,
    RefusedError,
    TransactionalCommitRequest,
)
from coordinator.group.offsets.transactions import MARKER_EPOCH_LIFE_MS
from coordinator.group.records.transactional_offset import (
    MarkerEpochKey,
)
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, Parked, reloaded
from tests.unit.coordinator.group.offsets.transactional_offsets import (
    T0,
    T1,
    U0,
    UNSTABLE,
    V2,
    fetch,
)


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
        """Two transactions have an offset of T0, the later one ends first; only a part of its end is in the log."""
        h = Harness(auto=False)
        h.commit_in_transaction(80, producer_id=8)
        h.commit_in_transaction(offsets={T0: OffsetToCommit(70), T1: OffsetToCommit(71)})
        h.finish_all()
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
        h.finish_all()
        h.commit(3)
        ended = h.end_transaction(producer_epoch=1, transaction_version=V2)
        assert ended.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER, "which is the latest is not known yet"
        h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
        h.end_transaction()
        h.finish_all()
        assert fetch(h, T0) == {T0: FetchedOffset(7)}

    def test_commits_while_the_transaction_ends_keep_their_order(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(offsets={T0: OffsetToCommit(7), T1: OffsetToCommit(7)})
        h.finish_all()
        ended = h.end_transaction()
        first = h.commit(offsets={T0: OffsetToCommit(1), U0: OffsetToCommit(1)})
        second = h.commit(offsets={U0: OffsetToCommit(2)})
        h.finish_all()
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
        h.finish_all()
        h.end_transaction(committed)
        h.commit(1)
        h.finish_all()
        assert fetch(h, T0, stable=True) == fetch(reloaded(h), T0, stable=True) == {T0: FetchedOffset(1)}

    def test_a_commit_that_waits_for_an_end_is_answered_when_the_coordinator_resigns(self) -> None:
        h = Harness(auto=False)
        h.commit_in_transaction(7)
        h.finish_all()
        ended, commit = h.end_transaction(), h.commit(1)
        h.coordinator.resign(h.now_ms)
        h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert ended.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert commit.answer == {T0: ErrorCode.NOT_COORDINATOR}
        assert h.end_transaction().answer is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestLateMarkers:
    def test_of_an_earlier_coordinator(self) -> None:
        """The later coordinator has ended the transaction; the producer's next transaction has the same epoch."""
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
        """KAFKA-19999: the marker has the epoch of the next transaction. A retry without a next transaction is still
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
        h.coordinator.suspect_hanging(7)
        assert h.coordinator.start_verification("g", 7, 0).is_needed
        assert h.coordinator.is_suspected(7)
        if again:
            h.commit_in_transaction()
        else:
            h.end_transaction()
        assert not h.coordinator.is_suspected(7)

    @pytest.mark.parametrize(
        ("marker", "error"),
        [
            ({}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ({"producer_epoch": 1}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ({"producer_epoch": 1, "transaction_version": V2}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            # Of the previous transaction, which the verification waited for.
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
        h.finish_all()
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
        h.finish_all()
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
