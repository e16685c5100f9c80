"""A change of a group with very many topics goes on in slices: the coordinator answers others meanwhile."""

from typing import Any

import pytest

from coordinator import slices
from coordinator.group.consumer import group as consumer_group
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.group.messages import (
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeavingMember,
    OffsetToCommit,
)
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import (
    CONFIG,
    REBALANCE_MS,
    SESSION_MS,
    Harness,
    Parked,
    reloaded,
    subscription,
)

NAMES = [f"t{number:02}" for number in range(20)]
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_UNITS", 1)
    monkeypatch.setattr(consumer_group, "FEW_TOPICS", 10)


@pytest.fixture
def h() -> Harness:
    h = Harness()
    h.topics.counts = dict.fromkeys(NAMES, 2)
    return h


def heartbeat(h: Harness, member_id: str, epoch: int = 0, **changes: Any) -> Parked[ConsumerHeartbeatResponse]:
    """Without further work of the coordinator."""
    fields: dict[str, Any] = {"client_id": "c", "client_host": "/127.0.0.1"}
    if epoch == 0:
        fields |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": NAMES, "owned": {}}
    parked = Parked[ConsumerHeartbeatResponse]()
    request = ConsumerHeartbeatRequest("g", member_id, epoch, **(fields | changes))
    h.coordinator.consumer_heartbeat(request, h.now_ms, parked)
    return parked


def loads(h: Harness) -> dict[str, int]:
    described = h.coordinator.describe_consumer_group("g")
    return {each.member_id: sum(map(len, each.target.values())) for each in described.members}


def test_members_join_in_slices(h: Harness) -> None:
    for member in ("a", "b"):
        joining = heartbeat(h, member)
        steps = 0
        while h.coordinator.has_work:
            assert not joining.answers
            assert heartbeat(h, "c").answer.error is LATER
            h.coordinator.work()
            steps += 1
        assert steps > len(NAMES)
        h.finish_all()
        assert joining.answer.error is ErrorCode.NONE
    assert loads(h) == {"a": 20, "b": 20}
    assert loads(reloaded(h)) == {"a": 20, "b": 20}


def test_a_small_change_is_answered_at_once(h: Harness) -> None:
    heartbeat(h, "a")
    h.finish_all()
    alive = heartbeat(h, "a", 1)
    assert not h.coordinator.has_work
    assert alive.answer.error is ErrorCode.NONE


def test_who_leaves_meanwhile_leaves_after_it(h: Harness) -> None:
    heartbeat(h, "a")
    h.finish_all()
    heartbeat(h, "b")
    left = heartbeat(h, "a", -1)
    assert not left.answers
    h.finish_all()
    assert left.answer.error is ErrorCode.NONE
    heartbeat(h, "b", 2, owned={})
    h.finish_all()
    assert loads(h) == {"b": 40}


def test_a_member_whose_heartbeats_are_refused_meanwhile_is_alive(h: Harness) -> None:
    heartbeat(h, "a")
    h.finish_all()
    heartbeat(h, "b")
    h.finish_all()
    heartbeat(h, "c")
    h.now_ms += CONFIG.consumer_session_timeout_ms
    assert heartbeat(h, "a", 1).answer.error is LATER
    h.coordinator.tick(h.now_ms)
    h.finish_all()
    h.advance(1_000)
    assert loads(h).keys() == {"a", "c"}, "b was silent"


def test_the_session_of_a_member_begins_when_it_is_answered(h: Harness) -> None:
    joining = heartbeat(h, "a")
    h.now_ms += CONFIG.consumer_session_timeout_ms
    h.coordinator.tick(h.now_ms)
    h.finish_all()
    assert joining.answer.error is ErrorCode.NONE
    h.advance(CONFIG.consumer_session_timeout_ms - 1)
    assert loads(h).keys() == {"a"}
    h.advance(1)
    assert not loads(h)


def test_the_session_of_a_classic_member_begins_when_it_is_answered(h: Harness) -> None:
    heartbeat(h, "a")
    h.finish_all()
    joining = Parked[JoinResponse]()
    protocols = [("range", subscription(*NAMES))]
    request = JoinRequest("g", "", "c", "/127.0.0.1", SESSION_MS, REBALANCE_MS, "consumer", protocols)
    h.coordinator.join(request, h.now_ms, joining)
    h.now_ms += SESSION_MS
    h.coordinator.tick(h.now_ms)
    h.finish_all()
    member_id = joining.answer.member_id
    h.advance(SESSION_MS - 1)
    assert loads(h).keys() == {"a", member_id}
    h.advance(1)
    assert loads(h).keys() == {"a"}


def test_a_topic_that_changes_meanwhile_is_seen_by_the_next_heartbeat(h: Harness) -> None:
    joining = heartbeat(h, "a")
    for _ in range(len(NAMES)):
        h.coordinator.work()
    h.topics.counts[NAMES[0]] = 5
    h.coordinator.topics_changed([NAMES[0]])
    h.finish_all()
    assert joining.answer.error is ErrorCode.NONE and loads(h) == {"a": 40}
    heartbeat(h, "a", joining.answer.member_epoch)
    h.finish_all()
    assert loads(h) == {"a": 43}


def test_offsets_are_committed_meanwhile(h: Harness) -> None:
    heartbeat(h, "a")
    h.finish_all()
    heartbeat(h, "b")
    committing: Parked[Any] = Parked()
    offsets = {TopicPartition("t01", 0): OffsetToCommit(1)}
    h.coordinator.commit_offsets(CommitRequest("g", offsets, "a", 1), h.now_ms, committing)
    h.log.finish_one(h.now_ms)
    assert [*committing.answer.values()] == [ErrorCode.NONE]


def test_classic_members(h: Harness) -> None:
    protocols = [("range", subscription(*NAMES))]
    heartbeat(h, "a")
    h.finish_all()
    joining = [h.join(protocols=protocols)]
    assert joining[0].answer.error is ErrorCode.NONE
    member_id, epoch = joining[0].answer.member_id, joining[0].answer.generation
    heartbeat(h, "b")
    assert h.coordinator.heartbeat(HeartbeatRequest("g", epoch, member_id), h.now_ms) is ErrorCode.NONE
    assert h.coordinator.leave(LeaveRequest("g", [LeavingMember(member_id)]), h.now_ms).member_errors == [0]
    h.finish_all()
    assert loads(h).keys() == {"a", "b"}


@pytest.mark.parametrize("steps", [0, 10, 1_000])
def test_a_coordinator_that_resigns_meanwhile_answers(h: Harness, steps: int) -> None:
    heartbeat(h, "a")
    h.finish_all()
    joining, left = heartbeat(h, "b"), heartbeat(h, "a", -1)
    for _ in range(steps):
        h.coordinator.work()
    h.coordinator.resign(h.now_ms)
    h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert joining.answer.error is ErrorCode.NOT_COORDINATOR
    assert left.answer.error is not ErrorCode.NONE
