"""What members have sent with JoinGroup has a limit over all groups of a coordinator."""

from __future__ import annotations

from coordinator.group.config import GroupConfig
from coordinator.group.metadata_memory import COUNT_AGAIN_MS, MetadataMemory
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness

LIMIT_BYTES = 10_000
LARGE = [("range", b"m" * 4_000)]


def harness() -> Harness:
    return Harness(GroupConfig(initial_rebalance_delay_ms=0, max_metadata_bytes=LIMIT_BYTES))


def joined(h: Harness, group: str, member_id: str = "") -> tuple[ErrorCode, str]:
    waiting = h.join(member_id, group, protocols=LARGE)
    h.advance(1)
    return waiting.answer.error, waiting.answer.member_id


def test_members_of_many_groups_share_it() -> None:
    h = harness()
    members = [joined(h, f"g{number}") for number in range(3)]
    assert [error for error, _ in members] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert joined(h, "g0", members[0][1])[0] is ErrorCode.NONE, "who joins again takes no more"
    assert not h.join(group="small").answers, "it is admitted"


def test_who_only_gets_an_id_takes_nothing() -> None:
    h = harness()
    for _ in range(5):
        asked = h.join(group="g", protocols=LARGE, require_member_id=True)
        assert asked.answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert h.join("nobody", "g", protocols=LARGE).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert joined(h, "other")[0] is ErrorCode.NONE


def test_members_that_have_gone_make_room() -> None:
    h = harness()
    _, (_, member_id) = joined(h, "other"), joined(h, "g")
    h.sync(member_id, 1, {member_id: b""})
    assert joined(h, "late")[0] is ErrorCode.GROUP_MAX_SIZE_REACHED
    h.leave(member_id)
    assert joined(h, "late")[0] is ErrorCode.GROUP_MAX_SIZE_REACHED, "it is not counted again at once"
    h.advance(COUNT_AGAIN_MS)
    assert joined(h, "late")[0] is ErrorCode.NONE


def test_a_loaded_coordinator_counts_the_members_that_it_finds() -> None:
    h = harness()
    group = h.first_join(protocols=LARGE)
    h.sync(group.member_id, 1, {group.member_id: b""})
    memory = MetadataMemory(LIMIT_BYTES, h.coordinator._groups)
    assert not memory.admits(LIMIT_BYTES - 4_000, h.now_ms) and memory.admits(5_000, h.now_ms)
    memory.grew(5_000)
    assert not memory.admits(5_000, h.now_ms)
