"""Commits, fetches, deletions and expiry of offsets."""

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.group.messages import (
    DeleteOffsetsResponse,
    FetchedOffset,
    FetchOffsetsRequest,
    OffsetToCommit,
)
from coordinator.group.offsets.group_offsets import METADATA_MAX_CHARS
from coordinator.group.records.group_metadata import GroupMetadataKey
from coordinator.group.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, Parked, reloaded, subscription

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
RETENTION_MS = CONFIG.offsets_retention_ms
CHECK_MS = CONFIG.offsets_retention_check_interval_ms


def fetch(h: Harness, *partitions: TopicPartition, stable: bool = False, group: str = "g") -> dict[TopicPartition, Any]:
    response = h.coordinator.fetch_offsets(FetchOffsetsRequest(group, partitions or None, stable))
    assert response.error is ErrorCode.NONE
    return dict(response.offsets)


def delete(h: Harness, *partitions: TopicPartition, group: str = "g") -> DeleteOffsetsResponse:
    parked = Parked[DeleteOffsetsResponse]()
    h.coordinator.delete_offsets(group, partitions, h.now_ms, parked)
    h.finish_all()
    return parked.answer


def delete_groups(h: Harness, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
    parked: Parked[Any] = Parked()
    h.coordinator.delete_groups(group_ids, h.now_ms, parked)
    h.finish_all()
    return dict(parked.answer)


def test_an_offset_counts_when_it_is_durable() -> None:
    h = Harness(auto=False)
    parked = h.commit(7)
    assert not parked.answers
    assert fetch(h, T0) == {T0: FetchedOffset()}
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    h.finish_all()
    assert parked.answer == {T0: ErrorCode.NONE}
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}
    assert h.changes == [("g", {T0: 7})]
    assert h.log.decoded() == [(OffsetCommitKey("g", "t", 0), OffsetCommitValue(7, "", h.now_ms, -1, -1))]


def test_all_fields_come_back() -> None:
    h = Harness()
    h.commit(offsets={T0: OffsetToCommit(7, 3, "meta"), U0: OffsetToCommit(8, metadata=None)})
    assert fetch(h) == {T0: FetchedOffset(7, 3, "meta"), U0: FetchedOffset(8)}
    assert fetch(h, TopicPartition("t", 9)) == {TopicPartition("t", 9): FetchedOffset()}
    assert fetch(h, T0, group="other") == {T0: FetchedOffset()}
    assert fetch(h, group="other") == {}


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_refused_append_leaves_the_old_offset(refusal: ErrorCode, error: ErrorCode) -> None:
    h = Harness(auto=False)
    h.commit(5)
    h.finish_all()
    parked = h.commit(9)
    h.finish_all(refusal)
    assert parked.answer == {T0: error}
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(5)}


def test_two_commits_under_way_end_with_the_later() -> None:
    h = Harness(auto=False)
    h.commit(5)
    h.commit(4)
    h.log.finish_one(h.now_ms)
    assert fetch(h, T0) == {T0: FetchedOffset(5)}
    assert fetch(h, T0, stable=True)[T0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    h.log.finish_one(h.now_ms)
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(4)}


def test_metadata_is_limited_in_utf16_units() -> None:
    h = Harness()
    longest = "😀" * (METADATA_MAX_CHARS // 2)
    offsets = {
        T0: OffsetToCommit(1, metadata=longest),
        U0: OffsetToCommit(2, metadata=longest + "x"),
    }
    assert h.commit(offsets=offsets).answer == {T0: ErrorCode.NONE, U0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert fetch(h) == {T0: FetchedOffset(1, metadata=longest)}
    too_large = {U0: offsets[U0]}
    assert h.commit(offsets=too_large).answer == {U0: ErrorCode.OFFSET_METADATA_TOO_LARGE}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"generation": 0, "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"group": ""}, ErrorCode.NONE),
        ({"generation": 3, "member_id": "m", "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3, "member_id": "m", "version": 9}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_commits_without_a_group(changes: dict[str, Any], error: ErrorCode) -> None:
    assert Harness().commit(**changes).answer == {T0: error}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "LEADER", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "LEADER"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "LEADER", "generation": 1}, ErrorCode.NONE),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_in_a_stable_group(changes: dict[str, Any], error: ErrorCode) -> None:
    h = Harness()
    [leader] = h.stable()
    if changes.get("member_id") == "LEADER":
        changes = changes | {"member_id": leader}
    assert h.commit(**changes).answer == {T0: error}


def test_a_member_may_commit_while_members_gather_but_not_while_the_leader_assigns() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    h.join(leader)
    assert h.commit(member_id=follower, generation=1).answer == {T0: ErrorCode.NONE}
    h.join(follower)
    assert h.commit(member_id=follower, generation=1).answer == {T0: ErrorCode.ILLEGAL_GENERATION}
    assert h.commit(member_id=follower, generation=2).answer == {T0: ErrorCode.REBALANCE_IN_PROGRESS}


def test_a_commit_is_a_sign_of_life() -> None:
    h = Harness()
    [leader] = h.stable()
    h.advance(9_999)
    h.commit(member_id=leader, generation=1)
    h.advance(9_999)
    assert h.heartbeat(leader, 1) is ErrorCode.NONE


class TestDeletion:
    def test_offsets_of_a_group_without_members(self) -> None:
        h = Harness()
        h.commit(1)
        h.commit(2, topic="u")
        assert delete(h, U0) == DeleteOffsetsResponse(ErrorCode.NONE, {U0: ErrorCode.NONE})
        assert fetch(h) == {T0: FetchedOffset(1)}
        assert h.log.decoded()[-1] == (OffsetCommitKey("g", "u", 0), None)
        assert h.changes[-1] == ("g", {U0: None})

    @pytest.mark.parametrize("deletion", ["of offsets", "of the topic"])
    def test_a_group_without_offsets_stays_until_offsets_expire(self, deletion: str) -> None:
        """An administrator may delete its last offsets, and then the group."""
        h = Harness()
        [leader] = h.stable()
        h.leave(leader)
        h.commit(1)
        if deletion == "of offsets":
            delete(h, T0)
        else:
            h.forget("t", b"", h.now_ms + 1)
        assert fetch(h) == {}
        assert h.coordinator.describe_group("g").state == "Empty"
        assert reloaded(h).coordinator.describe_group("g").state == "Empty"
        h.advance(CHECK_MS)
        assert h.coordinator.describe_group("g").state == "Dead"
        assert reloaded(h).coordinator.describe_group("g").state == "Dead"

    def test_only_topics_that_no_member_reads(self) -> None:
        h = Harness()
        [leader] = h.stable()
        for topic in "tu":
            h.commit(1, topic, member_id=leader, generation=1)
        assert dict(delete(h, T0, U0).partition_errors) == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: ErrorCode.NONE}
        assert fetch(h) == {T0: FetchedOffset(1)}

    def test_not_of_a_live_group_that_is_no_consumer(self) -> None:
        h = Harness()
        h.first_join(protocol_type="connect")
        assert delete(h, T0).error is ErrorCode.NON_EMPTY_GROUP
        assert delete(h, T0, group="other").error is ErrorCode.GROUP_ID_NOT_FOUND
        assert delete(h, T0, group="").error is ErrorCode.INVALID_GROUP_ID

    def test_a_commit_under_way_does_not_come_back(self) -> None:
        h = Harness(auto=False)
        h.commit(1, topic="u")
        h.finish_all()
        commit = h.commit(5)
        deleted = Parked[DeleteOffsetsResponse]()
        h.coordinator.delete_offsets("g", [T0], h.now_ms, deleted)
        h.finish_all()
        assert commit.answer == {T0: ErrorCode.NONE}
        assert deleted.answer.error is ErrorCode.NONE
        assert fetch(h) == {U0: FetchedOffset(1)}
        assert h.log.decoded()[-1] == (OffsetCommitKey("g", "t", 0), None)

    def test_not_though_a_later_commit_is_refused(self) -> None:
        h = Harness(auto=False)
        h.commit(1, topic="u")
        h.finish_all()
        h.commit(5)
        h.coordinator.delete_offsets("g", [T0], h.now_ms, Parked[DeleteOffsetsResponse]())
        h.commit(6)
        for error in (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS):
            h.log.finish_one(h.now_ms, error)
        assert fetch(h) == fetch(reloaded(h)) == {U0: FetchedOffset(1)}
        h.commit(7)
        h.finish_all()
        assert fetch(h, T0) == {T0: FetchedOffset(7)}

    def test_an_acknowledged_deletion_stays_though_the_log_has_no_room(self) -> None:
        h = Harness()
        h.commit(1)
        h.commit(1, topic="u")
        h.auto = False
        for _ in range(2):  # the client would retry
            deleted = Parked[DeleteOffsetsResponse]()
            h.coordinator.delete_offsets("g", [T0], h.now_ms, deleted)
            h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert deleted.answer.error is ErrorCode.NONE
        assert fetch(h) == fetch(reloaded(h)) == {U0: FetchedOffset(1)}

    def test_an_acknowledged_deletion_of_a_group_stays_though_the_log_has_no_room(self) -> None:
        h = Harness()
        h.commit(1)
        h.auto = False
        answers = []
        for _ in range(2):
            deleted = Parked[Any]()
            h.coordinator.delete_groups(["g"], h.now_ms, deleted)
            h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
            answers.append(deleted.answer["g"])
        assert answers == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert reloaded(h).coordinator.list_groups().groups == []

    def test_groups_without_members(self) -> None:
        h = Harness()
        [leader] = h.stable()
        h.commit(1, member_id=leader, generation=1)
        h.commit(1, group="simple")
        assert delete_groups(h, ["g", "other"]) == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "other": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        h.leave(leader)
        assert delete_groups(h, ["g", "simple"]) == {"g": ErrorCode.NONE, "simple": ErrorCode.NONE}
        assert h.log.decoded()[-3:] == [
            (OffsetCommitKey("g", "t", 0), None),
            (GroupMetadataKey("g"), None),
            (OffsetCommitKey("simple", "t", 0), None),
        ]
        assert h.coordinator.list_groups().groups == []
        assert h.coordinator.describe_group("g").state == "Dead"

    def test_a_deleted_topic_is_forgotten(self) -> None:
        h = Harness()
        h.commit(1)
        h.commit(1, topic="u")
        h.forget("t", b"", h.now_ms + 1)
        assert fetch(h) == {U0: FetchedOffset(1)}

    def test_a_topic_made_anew_keeps_its_own_offsets(self) -> None:
        h = Harness()
        h.commit(offsets={T0: OffsetToCommit(7, topic_id=OLD_ID)})
        h.commit(offsets={T1: OffsetToCommit(8, topic_id=NEW_ID)})
        h.commit(9, topic="u")
        for _ in range(2):  # a deletion may be announced twice, and late
            h.forget("t", OLD_ID, h.now_ms + 1)
            assert {each: fetched.offset for each, fetched in fetch(h).items()} == {T1: 8, U0: 9}

    def test_offsets_without_the_topics_id_go_by_their_time(self) -> None:
        h = Harness()
        h.commit(7)
        h.now_ms += 10
        h.commit(8, partition=1)
        h.forget("t", OLD_ID, h.now_ms)
        assert set(fetch(h)) == {T1}

    def test_the_topics_id_survives_a_change_of_coordinator(self) -> None:
        h = Harness()
        h.commit(offsets={T0: OffsetToCommit(7, topic_id=OLD_ID)})
        assert fetch(reloaded(h)) == {T0: FetchedOffset(7, topic_id=OLD_ID)}


class TestExpiry:
    def test_a_simple_consumers_offsets_live_from_their_commit(self) -> None:
        h = Harness()
        h.commit(1)
        h.advance(CHECK_MS // 2)
        h.commit(1, topic="u")
        h.advance(RETENTION_MS - CHECK_MS // 2)
        assert set(fetch(h)) == {U0}
        h.advance(CHECK_MS)
        assert h.coordinator.list_groups().groups == []
        assert h.log.decoded()[-1] == (OffsetCommitKey("g", "u", 0), None)

    def test_an_emptied_groups_offsets_live_from_then(self) -> None:
        h = Harness()
        [leader] = h.stable()
        h.commit(1, member_id=leader, generation=1)
        for _ in range(RETENTION_MS // CHECK_MS * 2):
            h.now_ms += CHECK_MS
            h.heartbeat(leader, 1)
            h.coordinator.tick(h.now_ms)
        h.leave(leader)
        h.advance(RETENTION_MS - CHECK_MS)
        assert set(fetch(h)) == {T0}
        h.advance(2 * CHECK_MS)
        assert fetch(h) == {}
        assert h.log.decoded()[-1] == (GroupMetadataKey("g"), None)

    def test_a_live_groups_offsets_go_only_for_topics_it_no_longer_reads(self) -> None:
        h = Harness()
        [leader] = h.stable()
        for topic in "tu":
            h.commit(1, topic, member_id=leader, generation=1)
        h.now_ms += RETENTION_MS
        h.heartbeat(leader, 1)
        h.coordinator.tick(h.now_ms)
        h.finish_all()
        assert set(fetch(h)) == {T0}

    def test_a_live_group_of_unknown_subscriptions_keeps_all(self) -> None:
        h = Harness()
        leader = h.first_join(protocols=[("range", b"garbage")]).member_id
        h.sync(leader, 1)
        h.commit(1, member_id=leader, generation=1)
        h.now_ms += RETENTION_MS * 2
        h.heartbeat(leader, 1)
        h.coordinator.tick(h.now_ms)
        assert set(fetch(h)) == {T0}

    def test_an_old_clients_own_retention(self) -> None:
        h = Harness()
        h.commit(1, retention_ms=CHECK_MS)
        assert h.log.durable[-1].value is not None
        assert h.log.durable[-1].value[:2] == b"\x00\x01"
        h.advance(2 * CHECK_MS)
        assert fetch(h) == {}

    def test_version_1s_own_timestamp(self) -> None:
        h = Harness()
        h.commit(offsets={T0: OffsetToCommit(1, commit_timestamp_ms=h.now_ms - RETENTION_MS)})
        h.advance(CHECK_MS)
        assert fetch(h) == {}

    def test_a_commit_under_way_keeps_the_old_one(self) -> None:
        h = Harness(auto=False)
        h.commit(1)
        h.finish_all()
        h.now_ms += RETENTION_MS
        h.commit(2)
        h.coordinator.tick(h.now_ms)
        assert fetch(h, T0) == {T0: FetchedOffset(1)}

    def test_a_boundless_retention_fits_a_record(self) -> None:
        h = Harness()
        assert h.commit(retention_ms=2**63 - 1).answer == {T0: ErrorCode.NONE}


def test_subscriptions_of_all_members_count() -> None:
    h = Harness()
    joins = [h.join(protocols=[("range", subscription(topic))]) for topic in "tu"]
    h.advance(0)
    members = [parked.answer.member_id for parked in joins]
    for member in members:
        h.sync(member, 1)
    errors = dict(delete(h, T0, U0, TopicPartition("v", 0)).partition_errors)
    assert list(errors.values()) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2 + [ErrorCode.NONE]
