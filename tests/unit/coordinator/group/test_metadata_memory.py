"""What members have sent with JoinGroup has a limit over all groups of a coordinator."""

from __future__ import annotations

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.consumer import validation
from coordinator.group.consumer.group import ConsumerGroup
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


def test_protocols_without_a_name_and_metadata_take_memory() -> None:
    h = harness()
    waiting = h.join("", "g", protocols=[("", b"")] * 1_000)
    assert waiting.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def names(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_topics_that_members_name_take_memory() -> None:
    """What several members of a group name alike is kept once."""
    h = harness()
    for member in ("a", "b", "c"):
        assert h.consumer_heartbeat(member, subscribed_topic_names=names(60)).answer.error is ErrorCode.NONE
    refused = h.consumer_heartbeat("d", subscribed_topic_names=names(60, "u"))
    assert refused.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    for member in ("a", "b", "c"):
        h.consumer_heartbeat(member, -1)
    h.advance(COUNT_AGAIN_MS)
    assert h.consumer_heartbeat("d", subscribed_topic_names=names(60, "u")).answer.error is ErrorCode.NONE


def test_a_group_has_so_many_topics_in_its_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_NAMES_OF_GROUP", 5)
    h = harness()
    for member in ("a", "b"):
        h.consumer_heartbeat(member, subscribed_topic_names=names(3))
    refused = h.consumer_heartbeat("c", subscribed_topic_names=names(3, "u"))
    assert refused.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    h.consumer_heartbeat("c", subscribed_topic_names=names(2, "u"))
    group = h.coordinator._groups["g"]
    assert isinstance(group, ConsumerGroup) and group.named_count == 5
    assert group.members["a"].topics is group.members["b"].topics
    for member in ("a", "b", "c"):
        h.consumer_heartbeat(member, -1)
    assert group.named_count == 0


def test_members_of_a_group_that_is_over_the_limit_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, an older version of the gateway has admitted them. A member may subscribe to less instead."""
    h = harness()
    epochs = {}
    for member, prefix in (("a", "t"), ("b", "u")):
        epochs[member] = h.consumer_heartbeat(member, subscribed_topic_names=names(3, prefix)).answer.member_epoch
    monkeypatch.setattr(validation, "MAX_NAMES_OF_GROUP", 5)
    assert h.consumer_heartbeat("b", epochs["b"]).answer.error is ErrorCode.NONE
    again = h.consumer_heartbeat("b", epochs["b"], subscribed_topic_names=names(3, "u"))
    assert again.answer.error is ErrorCode.NONE
    assert h.consumer_heartbeat("b", epochs["b"], subscribed_topic_names=names(2, "v")).answer.error is ErrorCode.NONE
