"""Kafka's GroupMetadataKey (version 2) and GroupMetadataValue (versions 0 to 4): a classic group in one generation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from construct import Construct, Int32sb, Int64sb

from coordinator.group.records.fields import (
    BYTES,
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    NULLABLE_STRING,
    STRING,
    TAGGED_FIELDS,
    AsDataclass,
    RecordType,
    array,
    compact_array,
)


@dataclass(frozen=True)
class GroupMetadataKey:
    group: str


@dataclass(frozen=True)
class MemberMetadata:
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class GroupMetadataValue:
    """A classic group in one generation. `state_timestamp_ms` is -1 in records older than Kafka 2.1."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = -1
    members: Sequence[MemberMetadata] = field(default_factory=tuple)
    tagged_fields: Sequence[Any] = ()


def _member(version: int) -> Construct:
    instance = {"group_instance_id": NULLABLE_STRING} if version >= 3 else {}
    rebalance = {"rebalance_timeout_ms": Int32sb} if version >= 1 else {}
    return AsDataclass(
        MemberMetadata,
        member_id=STRING,
        **instance,
        client_id=STRING,
        client_host=STRING,
        **rebalance,
        session_timeout_ms=Int32sb,
        subscription=BYTES,
        assignment=BYTES,
    )


def _group(version: int) -> Construct:
    timestamp = {"state_timestamp_ms": Int64sb} if version >= 2 else {}
    return AsDataclass(
        GroupMetadataValue,
        protocol_type=STRING,
        generation=Int32sb,
        protocol=NULLABLE_STRING,
        leader=NULLABLE_STRING,
        **timestamp,
        members=array(_member(version)),
    )


_MEMBER_V4 = AsDataclass(
    MemberMetadata,
    member_id=COMPACT_STRING,
    group_instance_id=COMPACT_NULLABLE_STRING,
    client_id=COMPACT_STRING,
    client_host=COMPACT_STRING,
    rebalance_timeout_ms=Int32sb,
    session_timeout_ms=Int32sb,
    subscription=COMPACT_BYTES,
    assignment=COMPACT_BYTES,
    tagged_fields=TAGGED_FIELDS,
)
_GROUP_VALUES = {version: _group(version) for version in range(4)} | {
    4: AsDataclass(
        GroupMetadataValue,
        protocol_type=COMPACT_STRING,
        generation=Int32sb,
        protocol=COMPACT_NULLABLE_STRING,
        leader=COMPACT_NULLABLE_STRING,
        state_timestamp_ms=Int64sb,
        members=compact_array(_MEMBER_V4),
        tagged_fields=TAGGED_FIELDS,
    )
}

GROUP_METADATA = RecordType(
    GroupMetadataKey, AsDataclass(GroupMetadataKey, group=STRING), 2, _GROUP_VALUES, write_version=3
)
