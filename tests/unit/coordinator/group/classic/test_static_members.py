"""Static members (KIP-345) of a classic group, and the leader that may skip its assignment (KIP-814)."""


import pytest

from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import REBALANCE_MS, SESSION_MS, Harness, subscription


class TestStaticMembers:
    """KIP-345, and KIP-814 where it is named."""

    def stable(self, h: Harness) -> list[str]:
        joins = [h.join(group_instance_id=f"i{n}") for n in range(2)]
        h.advance(0)
        members = [parked.answer.member_id for parked in joins]
        assert members == ["i0-id1", "i1-id2"]
        for member in (members[1], members[0]):
            h.sync(member, 1, {m: m.encode() for m in members})
        return members

    @pytest.mark.parametrize(("who", "skips"), [(0, False), (1, False), (0, True), (1, True)])
    def test_a_restart_in_a_stable_group_keeps_generation_and_assignment(self, who: int, skips: bool) -> None:
        h = Harness(auto=False)
        members = self.stable_after_settling(h)
        parked = h.join(group_instance_id=f"i{who}", can_skip_assignment=skips)
        assert not parked.answers, "the new id must be durable first"
        h.finish_all()
        answer = parked.answer
        assert (answer.error, answer.generation, answer.member_id) == (ErrorCode.NONE, 1, f"i{who}-id3")
        leads = who == 0
        assert answer.skip_assignment is (skips and leads)
        assert len(answer.members) == (2 if skips and leads else 0)
        assert answer.leader_id == (answer.member_id if skips and leads else members[0])
        assert h.sync(answer.member_id, 1).answer.assignment == members[who].encode()

    def stable_after_settling(self, h: Harness) -> list[str]:
        h.auto = True
        members = self.stable(h)
        h.auto = False
        return members

    def test_the_old_incarnation_is_fenced(self) -> None:
        h = Harness()
        members = self.stable(h)
        h.join(group_instance_id="i1")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert h.heartbeat(members[1], 1, "i1") is fenced
        assert h.heartbeat(members[1], 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert h.sync(members[1], 1, group_instance_id="i1").answer.error is fenced
        assert h.join(members[1], group_instance_id="i1").answer.error is fenced
        assert h.leave(members[1], "i1") is fenced
        assert set(h.commit(member_id=members[1], generation=1, group_instance_id="i1").answer.values()) == {fenced}

    def test_a_failed_store_leaves_the_old_id_in_place(self) -> None:
        h = Harness(auto=False)
        members = self.stable_after_settling(h)
        parked = h.join(group_instance_id="i1", protocols=[("range", subscription("other"))])
        h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (parked.answer.error, parked.answer.member_id) == (ErrorCode.NOT_COORDINATOR, "")
        assert h.heartbeat(members[1], 1, "i1") is ErrorCode.NONE
        assert h.coordinator.describe_group("g").members[1].metadata == subscription("t")

    def test_a_restarted_member_that_dies_while_the_log_is_slow_is_out_in_the_end(self) -> None:
        h = Harness(auto=False)
        members = self.stable_after_settling(h)
        h.join(group_instance_id="i1")
        for _ in range(3):
            h.advance(SESSION_MS - 1)
            h.heartbeat(members[0], 1)
        h.finish_all()
        h.advance(SESSION_MS - 1)
        assert h.heartbeat(members[0], 1) is ErrorCode.NONE
        h.advance(1)
        assert h.heartbeat(members[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_restart_with_other_protocols_rebalances(self) -> None:
        h = Harness()
        both = [("range", b""), ("sticky", b"")]
        leader = h.first_join(group_instance_id="i0", protocols=both).member_id
        h.sync(leader, 1)
        answer = h.join(group_instance_id="i0", protocols=[("sticky", b""), ("range", b"")]).answer
        assert (answer.generation, answer.protocol_name) == (2, "sticky")

    def test_a_restart_while_the_leader_assigns_rebalances(self) -> None:
        h = Harness()
        joins = [h.join(group_instance_id=f"i{n}") for n in range(2)]
        h.advance(0)
        waiting = h.sync(joins[1].answer.member_id, 1)
        newcomer = h.join(group_instance_id="i1")
        assert waiting.answer.error is ErrorCode.FENCED_INSTANCE_ID
        h.join(joins[0].answer.member_id, group_instance_id="i0")
        assert newcomer.answer.generation == 2

    def test_a_restart_during_a_rebalance_fences_the_parked_join(self) -> None:
        h = Harness()
        members = self.stable(h)
        parked = h.join(members[0], group_instance_id="i0")
        newcomer = h.join(group_instance_id="i0")
        assert (parked.answer.error, parked.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, members[0])
        h.join(members[1], group_instance_id="i1")
        assert newcomer.answer.leader_id == newcomer.answer.member_id

    def test_a_rebalance_meanwhile_answers_the_restarted_member(self) -> None:
        h = Harness(auto=False)
        members = self.stable_after_settling(h)
        restarted = h.join(group_instance_id="i1")
        leader = h.join(members[0], group_instance_id="i0")
        assert restarted.answer.generation == leader.answer.generation == 2
        h.finish_all()

    def test_two_restarts_under_way_end_with_the_later(self) -> None:
        h = Harness(auto=False)
        self.stable_after_settling(h)
        first, second = h.join(group_instance_id="i1"), h.join(group_instance_id="i1")
        assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
        h.log.finish_one(h.now_ms)
        assert not second.answers, "its own id is not durable yet"
        h.finish_all()
        assert (second.answer.error, second.answer.member_id) == (ErrorCode.NONE, "i1-id4")

    def test_a_restart_that_owes_its_sync_still_owes_it(self) -> None:
        h = Harness()
        joins = [h.join(group_instance_id=f"i{n}") for n in range(2)]
        h.advance(0)
        leader = joins[0].answer.member_id
        h.sync(leader, 1, {})
        restarted = h.join(group_instance_id="i1").answer.member_id
        for _ in range(REBALANCE_MS // 5_000):
            h.heartbeat(leader, 1)
            h.heartbeat(restarted, 1)
            h.advance(5_000)
        assert h.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert h.heartbeat(restarted, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_late_static_members_stay_until_their_session_ends(self) -> None:
        h = Harness()
        members = self.stable(h)
        h.heartbeat(members[1], 1)
        parked = h.join(members[0], group_instance_id="i0", rebalance_timeout_ms=7_000)
        h.join(members[0], group_instance_id="i0", rebalance_timeout_ms=7_000)
        for _ in range(REBALANCE_MS // 5_000):
            h.heartbeat(members[1], 1)
            h.advance(5_000)
        assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert h.coordinator.describe_group("g").state == "CompletingRebalance"
        assert len(h.coordinator.describe_group("g").members) == 2

    @pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
    def test_a_rebalance_without_a_timeout_waits_for_late_static_members(self, rebalance_timeout_ms: int) -> None:
        """Otherwise the timer would be due again each time, and the coordinator would do nothing else."""
        h = Harness()
        static = h.first_join(group_instance_id="i1").member_id
        h.join(static, group_instance_id="i1", rebalance_timeout_ms=rebalance_timeout_ms, protocols=[("range", b"")])
        assert h.sync(static, 2).answer.error is ErrorCode.NONE
        other = h.join(rebalance_timeout_ms=rebalance_timeout_ms)
        assert h.leave("c-id2") is ErrorCode.NONE
        assert other.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
        h.coordinator.tick(h.now_ms)
        deadline_ms = h.coordinator.next_deadline_ms()
        assert deadline_ms is not None and deadline_ms > h.now_ms
        h.advance(SESSION_MS - 1)
        assert h.coordinator.describe_group("g").state == "PreparingRebalance"
        h.advance(2 * SESSION_MS)
        assert h.coordinator.describe_group("g").state == "Empty"

    def test_an_admin_removes_by_instance_id(self) -> None:
        h = Harness()
        self.stable(h)
        assert h.leave("", "i1") is ErrorCode.NONE
        assert len(h.coordinator.describe_group("g").members) == 1
