"""JoinGroup and LeaveGroup: each kind of request in each state."""

from typing import Any

import pytest

from coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from coordinator.group.messages import LeaveRequest, LeavingMember
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import RANGE, SESSION_MS, Harness, subscription


def test_the_first_member_leads_the_first_generation() -> None:
    h = Harness()
    response = h.first_join()
    assert response.error is ErrorCode.NONE
    assert (response.generation, response.leader_id, response.member_id) == (1, "c-id1", "c-id1")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in response.members] == [("c-id1", subscription("t"))]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "é" * 20_000}, ErrorCode.INVALID_GROUP_ID),
        ({"client_id": "c" * 32_767}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("range", b"a"), ("range", b"b")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused_at_the_door(changes: dict[str, Any], error: ErrorCode) -> None:
    assert Harness().join(**changes).answer.error is error


def test_a_protocol_that_the_others_lack_is_refused() -> None:
    h = Harness()
    h.stable()
    assert h.join(protocols=[("sticky", b"")]).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_any_protocol_is_supported_once_all_have_left_before_the_first_generation() -> None:
    """A consumer that restarts with another assignor must not fail for good."""
    h = Harness(GroupConfig(initial_rebalance_delay_ms=3_000))
    h.join(member_id=h.join(require_member_id=True).answer.member_id, require_member_id=True)
    h.leave("c-id1")
    joined = h.join(protocols=[("sticky", b"")])
    h.advance(6_000)
    assert (joined.answer.error, joined.answer.protocol_name) == (ErrorCode.NONE, "sticky")


def test_protocols_that_nobody_supports_any_more_are_forgotten() -> None:
    """A member may name other protocols whenever it joins again: a hundred thousand in each request."""
    h = Harness()
    [member] = h.stable()
    for number in range(5):
        h.join(member, protocols=[*RANGE, (f"p{number}", b"")])
    assert h.coordinator._groups["g"]._supported._supporters == {"range": 1, "p4": 1}
    h.leave(member)
    assert not h.coordinator._groups["g"]._supported._supporters


def test_members_vote_among_the_protocols_that_all_have() -> None:
    h = Harness()
    both = [("a", b"a1"), ("b", b"b1")]
    joins = [h.join(protocols=p) for p in (both, [("x", b""), ("b", b"b2"), ("a", b"a2")], [("b", b"b3"), ("a", b"")])]
    h.advance(0)
    assert joins[0].answer.protocol_name == "b"
    assert [m.metadata for m in joins[0].answer.members] == [b"b1", b"b2", b"b3"]
    assert joins[1].answer.members == ()


def test_kip_394_a_new_member_must_come_back_with_its_id() -> None:
    h = Harness()
    given = h.join(require_member_id=True).answer
    assert (given.error, given.member_id, given.generation) == (ErrorCode.MEMBER_ID_REQUIRED, "c-id1", -1)
    joined = h.first_join(member_id="c-id1", require_member_id=True)
    assert (joined.error, joined.member_id) == (ErrorCode.NONE, "c-id1")


def test_a_rebalance_waits_for_an_id_given_until_its_session_ends() -> None:
    h = Harness()
    [leader] = h.stable()
    h.join(require_member_id=True)
    parked = h.join(leader)
    assert not parked.answers
    h.advance(SESSION_MS)
    assert parked.answer.generation == 2


def test_the_initial_delay_is_prolonged_by_each_newcomer_up_to_the_rebalance_timeout() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = h.join(rebalance_timeout_ms=7_000)
    h.advance(2_000)
    second = h.join(rebalance_timeout_ms=7_000)
    h.advance(3_999)
    assert not first.answers
    h.advance(1)
    assert first.answer.generation == second.answer.generation == 1


def test_a_group_that_is_empty_again_waits_for_newcomers_too() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=3_000))
    h.join()
    h.advance(3_000)
    [member] = h.coordinator.describe_group("g").members
    h.leave(member.member_id)
    assert h.coordinator.describe_group("g").state == "Empty"
    first = h.join(rebalance_timeout_ms=7_000)
    h.advance(2_000)
    second = h.join(rebalance_timeout_ms=7_000)
    h.advance(3_999)
    assert not first.answers
    h.advance(1)
    assert first.answer.generation == second.answer.generation


def test_initial_delay_never_passes_the_rebalance_timeout() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=3_000))
    joins = [h.join(rebalance_timeout_ms=7_000)]
    for _ in range(6):
        h.advance(1_000)
        joins.append(h.join(rebalance_timeout_ms=7_000))
    h.advance(1_000)
    assert {parked.answer.generation for parked in joins} == {1}


def test_a_full_group_refuses_members() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    members = h.stable(2)
    assert h.join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rejoined = [h.join(members[0]), h.join(members[1])]
    assert [parked.answer.generation for parked in rejoined] == [2, 2]


def test_the_last_member_to_join_is_refused_in_a_full_group() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    members = h.stable(2)
    first = h.join(members[0])  # the leader starts a rebalance
    newcomer = h.join()
    late = h.join(members[1])
    assert late.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.answer.generation == newcomer.answer.generation == 2


def test_a_follower_that_repeats_its_join_gets_the_current_generation() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    answer = h.join(follower).answer
    assert (answer.error, answer.generation, answer.leader_id, answer.members) == (ErrorCode.NONE, 1, leader, ())


@pytest.mark.parametrize("who", [0, 1])
def test_news_rebalance_a_stable_group(who: int) -> None:
    """A request of the leader always changes something; that of a follower if its metadata changed."""
    h = Harness()
    members = h.stable(2)
    news = h.join(members[who], protocols=[("range", subscription("t", "u"))])
    assert h.heartbeat(members[1 - who], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    h.join(members[1 - who])
    assert news.answer.generation == 2


def test_the_same_join_again_while_the_leader_assigns_changes_nothing() -> None:
    h = Harness()
    leader = h.first_join().member_id
    again = h.join(leader).answer
    assert (again.generation, len(again.members)) == (1, 1)


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    parked = h.join(leader)
    while not parked.answers:
        h.heartbeat(follower, 1)
        h.advance(1_000)
    assert [m.member_id for m in parked.answer.members] == [leader]
    assert h.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    parked = h.join(follower, protocols=[("range", subscription("u"))])
    assert h.leave(leader) is ErrorCode.NONE
    assert (parked.answer.leader_id, len(parked.answer.members)) == (follower, 1)


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    h = Harness()
    leader, _ = h.stable(2)
    newcomer = h.join(rebalance_timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 3)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        h.heartbeat(leader, 1)
        h.advance(5_000)
    assert newcomer.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_overtaken_join_is_answered_too() -> None:
    h = Harness()
    leader, _ = h.stable(2)
    first = h.join(leader)
    second = h.join(leader)
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.answers


def test_leaving_starts_a_rebalance_and_the_last_one_empties_the_group() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    assert h.leave(follower) is ErrorCode.NONE
    assert h.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.leave(leader) is ErrorCode.NONE
    assert h.coordinator.describe_group("g").state == "Empty"
    (_, last) = h.log.decoded()[-1]
    assert (last.generation, last.protocol, last.leader, last.members) == (2, None, None, [])


def test_leaving_answers_what_the_leaver_had_parked() -> None:
    h = Harness()
    leader, _follower = h.stable(2)
    parked = h.join(leader)
    assert h.leave(leader) is ErrorCode.NONE
    assert (parked.answer.error, parked.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_leaving_reports_each_member() -> None:
    h = Harness()
    [leader] = h.stable()
    given = h.join(require_member_id=True).answer.member_id
    leaving = [LeavingMember("nobody"), LeavingMember(given), LeavingMember(leader), LeavingMember("", "unknown")]
    response = h.coordinator.leave(LeaveRequest("g", leaving), h.now_ms)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert list(response.member_errors) == [unknown, ErrorCode.NONE, ErrorCode.NONE, unknown]
    nowhere = h.coordinator.leave(LeaveRequest("other", leaving[:1]), h.now_ms)
    assert (nowhere.error, list(nowhere.member_errors)) == (ErrorCode.NONE, [unknown])
