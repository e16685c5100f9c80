"""Requests that many cases share, with the fields of each version."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.records import NONE, Record, batch, message_set

READ_BACK_VERSION = 11
MAX_BYTES = 1 << 20


def native_magic(version: int) -> int:
    """The newest record format when a Produce or Fetch request of this version was introduced (Produce numbering)."""
    return {0: 0, 1: 0, 2: 1}.get(version, 2)


def encode_records(content: list[Record], magic: int, codec: int = NONE) -> bytes:
    return batch(content, codec) if magic == 2 else message_set(content, magic, codec)


def produce_fields(
    version: int,
    topics: dict[str, dict[int, bytes | None]],
    *,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    """A Produce request for {topic: {partition: record set}}."""
    data = [
        {"name": name, "partition_data": [{"index": index, "records": records} for index, records in parts.items()]}
        for name, parts in topics.items()
    ]
    fields: dict[str, Any] = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": data}
    return fields | ({"transactional_id": transactional_id} if version >= 3 else {})


def produce(conversation: Conversation, version: int, topic: str, data: bytes | None, **more: Any) -> dict[str, Any]:
    """Produce to partition 0 and compare the response."""
    return conversation.call("Produce", version, **produce_fields(version, {topic: {0: data}}, **more))


def fetch_partition(version: int, index: int, offset: int, max_bytes: int = MAX_BYTES, **more: int) -> dict[str, Any]:
    since = {"current_leader_epoch": 9, "last_fetched_epoch": 12, "log_start_offset": 5}
    known = {name: value for name, value in more.items() if version >= since[name]}
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": max_bytes, **known}


def fetch_fields(
    version: int,
    topics: list[dict[str, Any]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = MAX_BYTES,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A Fetch request. `session` is (id, epoch); (0, -1) requests none."""
    fields: dict[str, Any] = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "topics": topics}
    if version <= 14:
        fields["replica_id"] = -1
    for since, name, value in (
        (3, "max_bytes", max_bytes),
        (4, "isolation_level", isolation_level),
        (7, "session_id", session[0]),
        (7, "session_epoch", session[1]),
        (7, "forgotten_topics_data", forgotten or []),
        (11, "rack_id", ""),
    ):
        if version >= since:
            fields[name] = value
    return fields


def read_back(conversation: Conversation, topic: str, partition: int = 0, *, from_offset: int | None = None) -> None:
    """Compare the records of the partition since the case began."""
    start = conversation.names.start_offset if from_offset is None else from_offset
    parts = [fetch_partition(READ_BACK_VERSION, partition, start)]
    fields = fetch_fields(READ_BACK_VERSION, [{"topic": topic, "partitions": parts}])
    conversation.call("Fetch", READ_BACK_VERSION, **fields)


def init_producer_id(conversation: Conversation) -> tuple[int, int]:
    """The id and epoch of a new producer."""
    answer = conversation.when_loaded("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
    conversation.names.producer_ids[answer["producer_id"]] = "<producer>"
    return answer["producer_id"], answer["producer_epoch"]


def shared(conversation: Conversation, name: str = "produce", **configs: str) -> str:
    """A topic that cases share; offsets count from its current end."""
    topic = conversation.topic(name, partitions=2, configs={key.replace("_", "."): v for key, v in configs.items()})
    conversation.start_here(topic)
    return topic


def try_to_write(conversation: Conversation, version: int, data: bytes | None, **more: object) -> None:
    """Produce to the shared topic, then compare its records."""
    topic = shared(conversation)
    produce(conversation, version, topic, data, **more)
    read_back(conversation, topic)


def await_coordinator(conversation: Conversation, transactional_id: str) -> None:
    """Kafka creates its transaction coordinator at the first request. Nothing of this is compared."""
    named = {"key": transactional_id, "key_type": 1}
    conversation.when_loaded("FindCoordinator", 1, **named)
    conversation.when_loaded(
        "InitProducerId", 1, transactional_id=transactional_id + "-other", transaction_timeout_ms=60_000
    )
    del conversation.answers[-2:]
