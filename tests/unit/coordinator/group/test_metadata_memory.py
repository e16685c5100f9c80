"""What members have sent has a limit over all groups of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.classic import join
from coordinator.group.config import GroupConfig
from coordinator.group.consumer import validation
from coordinator.group.consumer.group import MATCH_BYTES, ConsumerGroup
from coordinator.group.consumer.messages import Rights
from coordinator.group.messages import texts_bytes
from coordinator.group.metadata_memory import COUNT_AGAIN_MS, MetadataMemory
from coordinator.topic_regex import matching
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import SESSION_MS, Harness

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


def test_who_only_gets_an_id_takes_little() -> None:
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


def test_ids_whose_members_have_not_joined_take_memory() -> None:
    """And a group has so many of them. They make room when they expire."""
    h = harness()
    errors = [h.join(group=f"g{n}", client_id="c" * 3_000, require_member_id=True).answer.error for n in range(4)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    h.advance(SESSION_MS)
    again = h.join(group="g", client_id="c" * 3_000, require_member_id=True).answer
    assert again.error is ErrorCode.MEMBER_ID_REQUIRED
    h.join(again.member_id, client_id="c" * 3_000)
    group = h.coordinator._groups["g"]
    assert group.metadata_bytes == sum(member.memory_bytes for member in group.members.values())


def test_a_group_has_so_many_members_that_have_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "MAX_PENDING_MEMBERS", 2)
    h = Harness(GroupConfig(initial_rebalance_delay_ms=0))
    asked = [h.join(require_member_id=True).answer for _ in range(3)]
    assert [each.error for each in asked[1:]] == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert h.join(group="other", require_member_id=True).answer.error is ErrorCode.MEMBER_ID_REQUIRED
    h.join(asked[0].member_id)
    assert h.join(require_member_id=True).answer.error is ErrorCode.MEMBER_ID_REQUIRED


def test_assignments_take_memory() -> None:
    h = harness()
    member = h.first_join().member_id
    assert h.sync(member, 1, {member: bytes(LIMIT_BYTES)}).answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    h.advance(COUNT_AGAIN_MS)
    assert h.sync(member, 1, {member: bytes(8_000), "nobody": bytes(8_000)}).answer.error is ErrorCode.NONE
    assert joined(h, "other")[0] is ErrorCode.GROUP_MAX_SIZE_REACHED
    h.join(member)
    h.advance(1)
    assert h.sync(member, 2, {member: bytes(8_000)}).answer.error is ErrorCode.NONE, "it takes no more than before"
    h.leave(member)
    assert h.coordinator._groups["g"].metadata_bytes == 0


@pytest.mark.parametrize("field", ["member_id", "instance_id", "rack_id", "client_id"])
def test_ids_of_consumer_members_take_memory(field: str) -> None:
    h, long = harness(), "x" * (LIMIT_BYTES // 3)
    errors = []
    for number in range(4):
        fields: dict[str, Any] = {"member_id": f"m{number}", field: f"{number}{long}"}
        errors.append(h.consumer_heartbeat(group=f"g{number}", **fields).answer.error)
    assert errors[0] is ErrorCode.NONE and errors[3] is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_that_gets_a_longer_id_takes_more() -> None:
    h = harness()
    h.consumer_heartbeat("m1")
    assert h.consumer_heartbeat("m1", 1, rack_id="r" * LIMIT_BYTES).answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.consumer_heartbeat("m2", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.consumer_heartbeat("m1", 1, rack_id="r" * 1_000).answer.error is ErrorCode.NONE


def test_one_wide_character_makes_a_text_wide() -> None:
    assert texts_bytes("a" * 1_000, None) < 1_100
    assert texts_bytes("a" * 1_000 + "\U0001f600") > 4_000


@pytest.mark.parametrize(("hidden", "admitted"), [("", 10), ("t1", 2)])
def test_what_expressions_match_takes_memory_unless_groups_share_it(hidden: str, admitted: int) -> None:
    """All that match the same topics share them, if their members may describe all of these."""
    h = harness()
    h.topics.counts = {f"t{number}": 1 for number in range(LIMIT_BYTES // MATCH_BYTES * 2 // 3)}
    matched = matching(".*", h.topics.counts)
    h.topics.matching = lambda regex: matched  # type: ignore[method-assign]
    fields: dict[str, Any] = {"subscribed_topic_names": None, "has_own_id": True, "subscribed_topic_regex": ".*"}
    errors = []
    for number in range(10):
        h.advance(COUNT_AGAIN_MS)
        rights = Rights(lambda name: name != hidden)
        errors.append(h.consumer_heartbeat("m", group=f"g{number}", rights=rights, **fields).answer.error)
    assert errors == [ErrorCode.NONE] * admitted + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (10 - admitted)
    assert (h.coordinator._groups["g0"].matches[".*"] is matched) == (not hidden)  # type: ignore[union-attr]
