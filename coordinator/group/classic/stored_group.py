"""A classic group as its last record describes it."""

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.messages import NO_TIMESTAMP
from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata


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
