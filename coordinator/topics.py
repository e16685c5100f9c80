"""Topics and their partitions, as coordinators name them."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class DeletedTopic(NamedTuple):
    """`topic_id` is empty if it is not known; `deleted_ms` is since the epoch."""

    name: str
    topic_id: bytes
    deleted_ms: int
