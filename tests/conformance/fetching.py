"""The topic that Fetch and ListOffsets cases read, and its form in Fetch requests."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.records import NONE, batch, records
from tests.conformance.requests import produce_fields

BATCHES, EACH = 4, 5
END = BATCHES * EACH
TOPIC_IDS_SINCE = 13
LONG_WAIT_MS = 60_000


def filled(conversation: Conversation, codec: int = NONE, name: str = "fetch") -> str:
    """A topic whose partition 0 holds four batches of five records, written once a session; partition 1 is empty."""
    full = conversation.names.prefix + name
    fresh = not conversation.has_topic(name)
    conversation.topic(name, partitions=2)
    if fresh:
        for number in range(BATCHES):
            data = batch(records(EACH, prefix=f"b{number}-", size=50), codec)
            answer = conversation.client.call("Produce", 9, **produce_fields(9, {full: {0: data}}))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return full


def named(conversation: Conversation, version: int, name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    """A topic of a Fetch request: by name up to v12, by id from v13."""
    if version < TOPIC_IDS_SINCE:
        return {"topic": conversation.names.prefix + name, "partitions": partitions}
    return {"topic_id": conversation.topic_id(name), "partitions": partitions}
