"""The content of internal topics, and the data that members of groups send to each other."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

from coordinator.fleet.messages import (
    Address,
    Deletion,
    Eviction,
    Goodbye,
    Heartbeat,
    LogPosition,
    MalformedMessageError,
    Member,
    MemberState,
    Snapshot,
    decode_message,
    decode_without_snapshot,
    encode_message,
)
from coordinator.group.loading import Loader
from coordinator.group.migration import AnyGroup
from coordinator.group.offsets.pending_offsets import PendingOffsets
from coordinator.group.offsets.transactions import OffsetTransactions
from coordinator.group.records.codec import decode_record, encode_record
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicMetadata,
    TopicPartitions,
)
from coordinator.group.records.group_metadata import (
    GROUP_METADATA,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from coordinator.group.records.offset_commit import OFFSET_COMMIT, OffsetCommitKey, OffsetCommitValue
from coordinator.group.records.transactional_offset import (
    MarkerEpochKey,
    MarkerEpochValue,
    TransactionalOffsetKey,
    TransactionalOffsetValue,
)
from coordinator.group.subscription import subscribed_topics
from coordinator.state_machine import MalformedRecordError
from tests.fuzz.target import Target, reason

_LENGTH = struct.Struct(">H")


class _Log:
    max_record_bytes = 5 * 1024 * 1024

    def append(self, *_: object, irrevocable: bool = False) -> None: ...


def _record_seeds(random: Random) -> Sequence[bytes]:
    partitions = [TopicPartitions(b"i" * 16, [0, 1])]
    member = MemberMetadata("m", "c", "/h", 10_000, b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"\0\0", 60_000, "i")
    pairs = [
        (OffsetCommitKey("g", "t", 3), OffsetCommitValue(7, "meta", 9, 1)),
        (OffsetCommitKey("g", "t", 3), OffsetCommitValue(7, "meta", 9, 1, 99)),
        (GroupMetadataKey("g"), GroupMetadataValue("consumer", 4, "range", "m", 5, [member])),
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(4)),
        (
            ConsumerGroupPartitionMetadataKey("g"),
            ConsumerGroupPartitionMetadataValue([TopicMetadata(b"i" * 16, "t", 3)]),
        ),
        (
            ConsumerGroupMemberMetadataKey("g", "m"),
            ConsumerGroupMemberMetadataValue(None, "r", "c", "/h", ["t"], "t.*", 9, "uniform"),
        ),
        (ConsumerGroupTargetAssignmentMetadataKey("g"), ConsumerGroupTargetAssignmentMetadataValue(4)),
        (ConsumerGroupTargetAssignmentMemberKey("g", "m"), ConsumerGroupTargetAssignmentMemberValue(partitions)),
        (
            ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
            ConsumerGroupCurrentMemberAssignmentValue(4, 3, 1, partitions, partitions),
        ),
        (ConsumerGroupRegularExpressionKey("g", "t.*"), ConsumerGroupRegularExpressionValue(["t"])),
        (
            TransactionalOffsetKey(5, "g", "t", 3),
            TransactionalOffsetValue(1, 2, True, OffsetCommitValue(7, "meta", 9, 1, topic_id=b"i" * 16)),
        ),
        (MarkerEpochKey(5), MarkerEpochValue(3, 9)),
    ]
    records = [encode_record(key, value) for key, value in pairs]
    found = [_LENGTH.pack(len(key)) + b"\1" + key + (value or b"") for key, value in records]
    for kind, key, value in ((OFFSET_COMMIT, *pairs[0]), (GROUP_METADATA, *pairs[2])):
        for version, form in kind.values.items():
            encoded = struct.pack(">h", kind.key_version) + kind.key.build(key)
            found.append(_LENGTH.pack(len(encoded)) + b"\1" + encoded + struct.pack(">h", version) + form.build(value))
    return [*found, *(seed[:2] + b"\0" + seed[3:] for seed in found)]


def check_record(data: bytes) -> str:
    """The length of the key, whether there is a value, key, value."""
    if len(data) < 3:
        return "short"
    end = 3 + _LENGTH.unpack_from(data)[0]
    key, value = data[3:end], data[end:] if data[2] else None
    try:
        decoded = decode_record(key, value)
        loader = _loader()
        loader.replay(key, value)
        groups = _finished(loader)
    except MalformedRecordError as error:
        return reason(error).replace("\n", " ")
    if decoded is None:
        return "unknown kind"
    _check_again(*decoded)
    return f"{type(decoded[0]).__name__} {len(groups) > 0}"


def _loader() -> Loader:
    log = _Log()
    transactions = OffsetTransactions(
        log, PendingOffsets(), lambda group_id: None, lambda group_id, offsets: None, lambda steps: None
    )
    return Loader(log, transactions)


def _finished(loader: Loader) -> dict[str, AnyGroup]:
    steps = loader.finish(1)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            groups: dict[str, AnyGroup] = end.value
            return groups


def _check_again(key: object, value: object) -> None:
    try:
        record = encode_record(key, value)
    except ValueError:  # another version has more fields
        return
    assert decode_record(record.key, record.value) is not None


def _message_seeds(random: Random) -> Sequence[bytes]:
    address = Address(host="h", port=9092)
    member = Member(
        node_id=1, incarnation="i", instance="h:1", addresses={"PLAIN": address}, forwarding=address, lease_ms=9,
        started_ms=1,
    )  # fmt: skip
    state = MemberState(member=member, sequence=5, drained_epoch=2)
    snapshot = Snapshot(epoch=3, position=LogPosition(1, 2), members=(state,))
    messages = (
        Heartbeat(state=state, snapshot=snapshot, joining=True), Goodbye(node_id=1, incarnation="i", snapshot=snapshot),
        Eviction(node_id=1, incarnation="i", sequence=4, snapshot=snapshot),
        Deletion(topics=("t", "ü"), snapshot=Snapshot(epoch=-1, position=None, members=())),
    )  # fmt: skip
    return [encode_message(message) for message in messages]


def check_message(data: bytes) -> str:
    try:
        message = decode_message(data)
    except MalformedMessageError as error:
        return reason(error)
    encoded = encode_message(message)
    assert decode_message(encoded) == message
    assert decode_without_snapshot(encoded) == message.model_copy(update={"snapshot": None})
    return type(message).__name__


def _subscription_seeds(random: Random) -> Sequence[bytes]:
    topics = b"\0\0\0\2\0\1t\0\4name"
    return [struct.pack(">h", version) + topics + rest for version in range(4) for rest in (b"\xff" * 4, b"\0\0\0\1u")]


def check_subscription(data: bytes) -> str:
    found = subscribed_topics([data])
    return "none" if found is None else f"{'some' if found else 'no'} topics"


TARGETS = (
    Target("group records", _record_seeds, check_record),
    Target("fleet messages", _message_seeds, check_message),
    Target("subscriptions", _subscription_seeds, check_subscription),
)
