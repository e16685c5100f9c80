"""Static members (KIP-345) of the consumer group protocol."""


import pytest

from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, reloaded

T = b"t" * 16
ALL_T = {T: set(range(6))}
SESSION_MS = CONFIG.consumer_session_timeout_ms


class TestStaticMembers:
    def test_a_restart_keeps_the_assignment(self) -> None:
        h = Harness()
        h.consumer_heartbeat("m1", instance_id="i1")
        assert h.consumer_heartbeat("m1", -2, instance_id="i1").answer.member_epoch == -2
        assert h.consumer_heartbeat("m1", 1, instance_id="i1").answer.error is ErrorCode.FENCED_MEMBER_EPOCH
        answer = h.consumer_heartbeat("m2", instance_id="i1").answer
        assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m2", 1, ALL_T)
        assert h.consumer_heartbeat("m1", 1, instance_id="i1").answer.error is ErrorCode.FENCED_INSTANCE_ID
        assert [m.member_id for m in h.coordinator.describe_consumer_group("g").members] == ["m2"]
        assert reloaded(h).consumer_heartbeat("m2", 1, instance_id="i1").answer.error is ErrorCode.NONE

    @pytest.mark.parametrize("is_reloaded", [False, True])
    def test_a_static_member_that_restarts_need_not_revoke_in_time(self, is_reloaded: bool) -> None:
        """Its successor owns nothing. Until its session ends, its partitions stay with it."""
        h = Harness()
        h.consumer_heartbeat("m1", instance_id="i1", rebalance_timeout_ms=5_000)
        h.consumer_heartbeat("m2")
        assert len(h.consumer_heartbeat("m1", 1, instance_id="i1").answer.assignment or ()) == 1, "has to revoke some"
        h.consumer_heartbeat("m1", -2, instance_id="i1")
        if is_reloaded:
            h = reloaded(h)
        h.advance(CONFIG.consumer_session_timeout_ms // 2)
        h.consumer_heartbeat("m2", 2)
        successor = h.consumer_heartbeat("m3", instance_id="i1", rebalance_timeout_ms=5_000).answer
        assert (successor.error, successor.assignment) == (ErrorCode.NONE, {T: {0, 1, 2}})

    @pytest.mark.parametrize("is_reloaded", [False, True])
    def test_a_member_that_changes_its_instance_id_frees_the_old_one(self, is_reloaded: bool) -> None:
        h = Harness()
        h.consumer_heartbeat("other")
        h.consumer_heartbeat("m1", instance_id="i1")
        h.consumer_heartbeat("m1", instance_id="i2")
        if is_reloaded:
            h = reloaded(h)
        assert h.consumer_heartbeat("m1", -1, instance_id="i2").answer.error is ErrorCode.NONE
        assert h.join(group_instance_id="i1").answer.error is ErrorCode.NONE

    def test_an_instance_id_in_use_is_refused(self) -> None:
        h = Harness()
        h.consumer_heartbeat("m1", instance_id="i1")
        assert h.consumer_heartbeat("m2", instance_id="i1").answer.error is ErrorCode.UNRELEASED_INSTANCE_ID
        assert h.consumer_heartbeat("m2", 1, instance_id="i1").answer.error is ErrorCode.FENCED_INSTANCE_ID
        assert h.consumer_heartbeat("m2", 1, instance_id="i2").answer.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_static_member_that_does_not_return_in_time_is_removed(self) -> None:
        h = Harness()
        h.consumer_heartbeat("m1", instance_id="i1")
        h.consumer_heartbeat("m1", -2, instance_id="i1")
        h.advance(SESSION_MS)
        assert h.coordinator.describe_consumer_group("g").state == "Empty"
