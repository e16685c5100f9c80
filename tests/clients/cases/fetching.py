"""Fetching records of the witness, by position and without a group."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import QUIET_MS, READ_TIMEOUT_MS, Lab, encoded, expect, fetching, numbered, record, sent, shown

FEATURE = "fetch"
LARGE_BYTES = 900_000


def from_the_start(lab: Lab) -> Any:
    """from the start, and from the middle of a batch"""
    topic = lab.topic()
    records = numbered(60)
    lab.witness.produce(topic, records)
    expect(shown(lab.client.fetch(topic, 60)), sent(records))
    expect(shown(lab.client.fetch(topic, 19, 41)), sent(records)[41:])


def at_the_end(lab: Lab) -> Any:
    """waiting at the end for what comes"""
    topic = lab.topic()
    lab.witness.produce(topic, numbered(10))
    lab.client.send("fetch", **fetching(topic, 3, 10))
    late = numbered(3, prefix="late")
    lab.witness.produce(topic, late)
    expect(shown(lab.client.receive(READ_TIMEOUT_MS / 1000 + 30)), sent(late, 10))


def nothing_there(lab: Lab) -> Any:
    """an empty partition"""
    expect(lab.client.fetch(lab.topic(), 1, timeout_ms=QUIET_MS), [])


def unusual_records(lab: Lab) -> Any:
    """null and empty keys and values, binary"""
    topic = lab.topic()
    every_byte = bytes(range(256))
    records = [record(value, key) for value in (b"v", b"", None, every_byte) for key in (b"k", b"", every_byte)]
    lab.witness.produce(topic, records)
    expect(shown(lab.client.fetch(topic, len(records))), sent(records))


def neither_key_nor_value(lab: Lab) -> Any:
    """neither key nor value"""
    topic = lab.topic()
    records = [record(None), record(b"v")]
    lab.witness.produce(topic, records)
    expect(shown(lab.client.fetch(topic, 2)), sent(records))


def headers(lab: Lab) -> Any:
    """headers: repeated, empty, binary"""
    topic = lab.topic()
    mine = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("ünicode", bytes(range(256)))]
    lab.witness.produce(topic, [record(b"with", headers=mine), record(b"without")])
    found = lab.client.fetch(topic, 2)
    if "headers" in found[0]:
        expect([name for name, _ in found[0]["headers"]], [name for name, _ in mine])
        expect(found[0]["headers"][0], ["trace", encoded(b"1")])
    return found[0].get("headers"), shown(found)


def null_header(lab: Lab) -> Any:
    """a header without a value"""
    topic = lab.topic()
    lab.witness.produce(topic, [record(b"v", headers=[("null", None)])])
    found = lab.client.fetch(topic, 1)
    return found[0].get("headers"), shown(found)


def larger_than_asked_for(lab: Lab) -> Any:
    """a record larger than the fetch size"""
    topic = lab.topic()
    records = [record(b"small"), record(b"x" * LARGE_BYTES), record(b"small too")]
    for each in records:
        lab.witness.produce(topic, [each])
    expect(shown(lab.client.fetch(topic, 3, max_bytes=20_000)), sent(records))


def small_fetches(lab: Lab) -> Any:
    """2,000 records in small fetches"""
    topic = lab.topic()
    records = numbered(2_000)
    for first in range(0, 2_000, 100):
        lab.witness.produce(topic, records[first : first + 100])
    expect(shown(lab.client.fetch(topic, 2_000, max_bytes=4_000)), sent(records))


def after_deleted_records(lab: Lab) -> Any:
    """a log that does not start at 0"""
    topic = lab.topic()
    records = numbered(20)
    lab.witness.produce(topic, records)
    lab.witness.call("delete_records", topic=topic, partition=0, offset=12)
    expect(shown(lab.client.fetch(topic, 8, 12)), sent(records)[12:])
    return lab.client.call("bounds", topic=topic, partition=0)


def bounds(lab: Lab) -> Any:
    """start and end offsets"""
    topic = lab.topic(2)
    lab.witness.produce(topic, numbered(9))
    found = [lab.client.call("bounds", topic=topic, partition=partition) for partition in (0, 1)]
    expect(found, [[0, 9], [0, 0]])
