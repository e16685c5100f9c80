"""One group id, members of the classic and of the consumer protocol (KIP-848): one after the other, and together."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.messages import FetchOffsetsRequest
from coordinator.group.records.group_metadata import GroupMetadataKey
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, reloaded


def test_a_consumer_member_does_not_speak_the_classic_protocol() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    assert h.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join(protocols=[("range", b"?")]).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.sync("m1", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("m1", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.leave("m1") is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.coordinator.describe_group("g").state == "Dead"
    [listed] = h.coordinator.list_groups(types={"consumer"}).groups
    assert (listed.protocol_type, listed.state, listed.group_type) == ("consumer", "Stable", "consumer")


def test_a_member_id_that_no_record_can_hold_is_refused() -> None:
    """The member would be in the group until the coordinator changes: no timer would run for it."""
    h = Harness()
    h.consumer_heartbeat("m1")
    metadata = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
    for member_id, error in (("m" * 32_767, ErrorCode.NONE), ("m" * 32_768, ErrorCode.INVALID_REQUEST)):
        assert h.join(member_id, protocols=[("range", metadata)]).answer.error is error
    assert [len(each.member_id) for each in h.coordinator.describe_consumer_group("g").members] == [2, 32_767]


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": [("range", b"?")]}, {}])
def test_a_live_classic_group_is_not_for_consumer_members(fields: dict[str, Any]) -> None:
    """If its members are not consumers, or the configuration forbids it."""
    h = Harness(replace(CONFIG, online_upgrade=bool(fields)))
    h.first_join(**fields)
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert h.coordinator.describe_consumer_group("g").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert h.coordinator.describe_group("g").state == "CompletingRebalance"


def test_an_empty_classic_group_turns_into_a_consumer_group_and_back() -> None:
    h = Harness()
    [leader] = h.stable()
    h.commit(7, member_id=leader, generation=1)
    h.leave(leader)
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.NONE
    assert dict(h.log.decoded())[GroupMetadataKey("g")] is None
    offsets = h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets
    assert offsets[TopicPartition("t", 0)].offset == 7
    h.consumer_heartbeat("m1", -1)
    assert h.first_join().error is ErrorCode.NONE
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets == offsets
    assert [g.group_type for g in reloaded(h).coordinator.list_groups().groups] == ["classic"]


def test_a_commit_under_way_survives_the_change() -> None:
    h = Harness(auto=False)
    commit = h.commit(7)
    h.consumer_heartbeat("m1")
    h.finish_all()
    assert commit.answer == {TopicPartition("t", 0): ErrorCode.NONE}
    offsets = h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets
    assert offsets[TopicPartition("t", 0)].offset == 7
