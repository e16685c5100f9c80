"""The groups of a partition, rebuilt from its records in the order in which they were written."""

from typing import Any

from coordinator.group.classic_group import ClassicGroup, group_from_record
from coordinator.group.offsets import GroupOffsets
from coordinator.group.ports import TopicPartition
from coordinator.group.record_codec import decode_record
from coordinator.group.records import GroupKey, GroupValue, OffsetKey


class Loader:
    """The last record of a key wins; a tombstone takes back the ones before it."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupValue] = {}
        self._offsets: dict[str, GroupOffsets] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Records of unknown kinds are passed over, as Kafka does. Raises MalformedRecordError."""
        decoded = decode_record(key, value)
        if decoded is not None:
            self._apply(*decoded)

    def _apply(self, key: Any, value: Any) -> None:
        if isinstance(key, OffsetKey):
            offsets = self._offsets.setdefault(key.group, GroupOffsets())
            offsets.replay(TopicPartition(key.topic, key.partition), value)
        elif isinstance(key, GroupKey):
            if value is None:
                self._groups.pop(key.group, None)
            else:
                self._groups[key.group] = value

    def finish(self, now_ms: int) -> dict[str, ClassicGroup]:
        """Groups that only ever stored offsets have no record of their own."""
        groups = {
            group_id: group_from_record(GroupKey(group_id), value, now_ms) for group_id, value in self._groups.items()
        }
        for group_id, offsets in self._offsets.items():
            if offsets:
                groups.setdefault(group_id, ClassicGroup(group_id, now_ms)).offsets = offsets
        return groups
