"""The errors that clients report when the server refuses."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, expect, fetching, numbered, record, values

FEATURE = "errors"


def record_too_large(lab: Lab) -> Any:
    """a record larger than max.message.bytes; the next one is taken"""
    topic = lab.topic(max_message_bytes="2000")
    request = {"acks": "all", "codec": "none", "idempotent": False, "transaction": None}
    refused = lab.client.error("produce", topic=topic, records=[record(b"x" * 5_000)], **request)
    expect(lab.client.produce(topic, [record(b"small")]), [[0, 0]])
    return refused


def offset_out_of_range(lab: Lab) -> Any:
    """an offset beyond the end, without a reset policy"""
    topic = lab.topic()
    lab.witness.produce(topic, numbered(5))
    return lab.client.error("fetch", **fetching(topic, 1, 1_000))


def offset_before_the_start(lab: Lab) -> Any:
    """an offset before the start, without a reset policy"""
    topic = lab.topic()
    lab.witness.produce(topic, numbered(5))
    lab.witness.call("delete_records", topic=topic, partition=0, offset=3)
    return lab.client.error("fetch", **fetching(topic, 1, 1))


def null_key_in_a_compacted_topic(lab: Lab) -> Any:
    """a record without a key for a compacted topic"""
    topic = lab.topic(cleanup_policy="compact")
    request = {"acks": "all", "codec": "none", "idempotent": False, "transaction": None}
    refused = lab.client.error("produce", topic=topic, records=[record(b"v")], **request)
    lab.client.produce(topic, [record(b"v", b"k")])
    expect(values(lab.witness.fetch(topic, 1)), ["v"])
    return refused
