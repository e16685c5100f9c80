"""Offsets of groups that speak the consumer protocol (KIP-848)."""

from typing import Any

from coordinator.group.messages import DeleteOffsetsResponse, FetchOffsetsRequest
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, Parked, reloaded


def test_commits_are_for_members_of_the_right_epoch() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    t0 = TopicPartition("t", 0)
    assert h.commit(member_id="m1", generation=1).answer == {t0: ErrorCode.NONE}
    assert h.commit(member_id="m1", generation=0).answer == {t0: ErrorCode.STALE_MEMBER_EPOCH}
    assert h.commit(member_id="m2", generation=1).answer == {t0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert h.commit().answer == {t0: ErrorCode.UNKNOWN_MEMBER_ID}
    h.consumer_heartbeat("m1", -1)
    assert h.commit().answer == {t0: ErrorCode.NONE}


def test_commits_of_members_need_version_9() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    answer = h.commit(member_id="m1", generation=1, version=8).answer
    assert answer[TopicPartition("t", 0)] is ErrorCode.UNSUPPORTED_VERSION
    answer = h.commit(member_id="m2", generation=1, version=8).answer
    assert answer[TopicPartition("t", 0)] is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches_of_members_too() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    requests = {
        FetchOffsetsRequest("g"): ErrorCode.NONE,
        FetchOffsetsRequest("g", member_id="m1", member_epoch=1): ErrorCode.NONE,
        FetchOffsetsRequest("g", member_id="m1", member_epoch=0): ErrorCode.STALE_MEMBER_EPOCH,
        FetchOffsetsRequest("g", member_id="m2", member_epoch=1): ErrorCode.UNKNOWN_MEMBER_ID,
    }
    for request, error in requests.items():
        assert h.coordinator.fetch_offsets(request).error is error


def test_only_offsets_of_unsubscribed_topics_are_deleted_or_expire() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    for topic in "tu":
        h.commit(1, topic, member_id="m1", generation=1)
    t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
    h.now_ms += CONFIG.offsets_retention_ms
    h.consumer_heartbeat("m1", 1)
    h.coordinator.tick(h.now_ms)
    h.finish_all()
    assert set(h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets) == {t0}
    parked = Parked[DeleteOffsetsResponse]()
    h.coordinator.delete_offsets("g", [t0, u0], h.now_ms, parked)
    h.finish_all()
    assert parked.answer.partition_errors == {t0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, u0: ErrorCode.NONE}


def test_deletion_leaves_nothing_behind() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    h.commit(member_id="m1", generation=1)
    deleted: Parked[Any] = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, deleted)
    assert deleted.answer == {"g": ErrorCode.NON_EMPTY_GROUP}
    h.consumer_heartbeat("m1", -1)
    deleted = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, deleted)
    h.finish_all()
    assert deleted.answer == {"g": ErrorCode.NONE}
    latest = dict(h.log.durable)
    assert set(latest.values()) == {None}
    assert reloaded(h).coordinator.list_groups().groups == []
