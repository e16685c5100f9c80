"""The rows of a request that commits offsets, and their error codes.

A request may name a partition several times. As in Kafka, each row has its own code: the last row whose metadata is not
too large is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from coordinator.group.messages import CommitResponse, OffsetToCommit
from coordinator.group.offsets.group_offsets import is_too_large
from coordinator.topics import TopicPartition
from gateway.requests.group_topics import NamedTopic, PartitionCounts, answered_rows
from protocol.kafka.errors import ErrorCode

_JUDGED_ALONE = {ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE}
"""Other codes are those of the whole request."""


class CommitRows:
    """`offsets` are for the coordinator. Partitions that do not exist are refused."""

    def __init__(
        self, topics: Sequence[NamedTopic], counts: PartitionCounts, offset_of: Callable[[str, Any], OffsetToCommit]
    ) -> None:
        """`offset_of` gets a topic's name and a row."""
        self.offsets: dict[TopicPartition, OffsetToCommit] = {}
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._repeated: dict[TopicPartition, list[bool]] = {}
        """Of partitions that are named again: whether the metadata of each row is too large."""
        self._answered = answered_rows(topics, counts)
        for topic in topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                error = counts.error(*key)
                if error:
                    self._refused[key] = error
                else:
                    self._add(key, offset_of(topic.name, each))

    def _add(self, key: TopicPartition, offset: OffsetToCommit) -> None:
        earlier = self.offsets.get(key)
        if earlier is None:
            self.offsets[key] = offset
            return
        too_large = is_too_large(offset.metadata)
        self._repeated.setdefault(key, [is_too_large(earlier.metadata)]).append(too_large)
        if not too_large:
            self.offsets[key] = offset

    def codes(self, answer: CommitResponse) -> Iterator[tuple[str, list[tuple[int, ErrorCode]]]]:
        """The topics of the response, with the code of each row. `answer` is the coordinator's."""
        errors: Mapping[TopicPartition, ErrorCode] = {**self._refused, **answer}
        times = Counter[TopicPartition]()

        def code(key: TopicPartition) -> ErrorCode:
            error = errors[key]
            if key not in self._repeated or error not in _JUDGED_ALONE:
                return error
            times[key] += 1
            too_large = self._repeated[key][times[key] - 1]
            return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE

        for name, numbers in self._answered:
            yield name, [(number, code(TopicPartition(name, number))) for number in numbers]
