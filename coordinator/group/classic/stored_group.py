"""A classic group as its record describes it: in one generation, with all members."""

from collections.abc import Mapping

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.messages import NO_TIMESTAMP
from coordinator.group.records.codec import encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from coordinator.log import Record


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> Record:
    """The group in this generation; `assignments` has an entry for every member."""
    value = GroupMetadataValue(
        group.protocol_type or "",
        group.generation,
        group.protocol_name,
        group.leader_id,
        NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        [_member_value(group, member, assignments[member.member_id]) for member in group.members.values()],
    )
    return encode_record(GroupMetadataKey(group.group_id), value)


def least_record_bytes(group: ClassicGroup, assignments: Mapping[str, bytes]) -> int:
    """Of the record with these assignments, without its ids."""
    protocol = group.protocol_name or ""
    return sum(len(m.metadata(protocol)) + len(assignments[m.member_id]) for m in group.members.values())


def _member_value(group: ClassicGroup, member: ClassicMember, assignment: bytes) -> MemberMetadata:
    assert group.protocol_name is not None
    return MemberMetadata(
        member.member_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.metadata(group.protocol_name),
        assignment,
        member.rebalance_timeout_ms,
        member.group_instance_id,
    )


def group_from_record(key: GroupMetadataKey, value: GroupMetadataValue, now_ms: int) -> ClassicGroup:
    """The group as of its last record: stable if it had members, whose sessions start again."""
    group = ClassicGroup(key.group, now_ms)
    group.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
    group.state_timestamp_ms = None if value.state_timestamp_ms == NO_TIMESTAMP else value.state_timestamp_ms
    group.generation = value.generation
    for member in value.members:
        group.add(_member_from_record(member, value.protocol or ""), value.protocol_type)
    if value.leader in group.members:
        group.leader_id = value.leader
    group.protocol_type = value.protocol_type or None
    group.protocol_name = (value.protocol or "") if value.members else None
    group.refresh_subscribed_topics()
    return group


def _member_from_record(member: MemberMetadata, protocol: str) -> ClassicMember:
    had_rebalance_timeout = member.rebalance_timeout_ms >= 0  # version 0 records have none
    return ClassicMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms if had_rebalance_timeout else member.session_timeout_ms,
        [(protocol, member.subscription)],
        member.assignment,
    )
