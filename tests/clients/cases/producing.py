"""Producing; the witness reads the records."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, encoded, expect, numbered, record, sent, shown

FEATURE = "produce"
LARGE_BYTES = 900_000
MANY = 3_000


def acknowledged_by_all(lab: Lab) -> Any:
    """acks=all"""
    return _written(lab, "all")


def acknowledged_by_leader(lab: Lab) -> Any:
    """acks=1"""
    return _written(lab, "1")


def not_acknowledged(lab: Lab) -> Any:
    """acks=0"""
    topic = lab.topic()
    records = numbered(20)
    lab.client.produce(topic, records, "0")
    expect(shown(lab.witness.fetch(topic, 20)), sent(records))


def unusual_records(lab: Lab) -> Any:
    """null and empty keys and values, binary"""
    topic = lab.topic()
    every_byte = bytes(range(256))
    records = [record(value, key) for value in (b"v", b"", None, every_byte) for key in (b"k", b"", every_byte)]
    lab.client.produce(topic, records)
    expect(shown(lab.witness.fetch(topic, len(records))), sent(records))


def neither_key_nor_value(lab: Lab) -> Any:
    """neither key nor value"""
    topic = lab.topic()
    records = [record(None), record(b"v")]
    lab.client.produce(topic, records)
    expect(shown(lab.witness.fetch(topic, 2)), sent(records))


def headers(lab: Lab) -> Any:
    """headers: repeated, empty, binary"""
    topic = lab.topic()
    mine = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("ünicode", bytes(range(256)))]
    lab.client.produce(topic, [record(b"with", headers=mine), record(b"without")])
    found = lab.witness.fetch(topic, 2)
    expect(shown(found, "headers"), [[[[name, encoded(value)] for name, value in mine]], [[]]])


def large_record(lab: Lab) -> Any:
    """a record of 900 KB"""
    topic = lab.topic()
    records = [record(b"x" * LARGE_BYTES), record(b"small")]
    lab.client.produce(topic, records)
    expect(shown(lab.witness.fetch(topic, 2)), sent(records))


def many_records(lab: Lab) -> Any:
    """3,000 records in order, in three partitions"""
    topic = lab.topic(3)
    answers = lab.client.produce(topic, numbered(MANY, 3))
    expect(answers, [[n % 3, n // 3] for n in range(MANY)])
    return shown(lab.witness.fetch(topic, MANY // 3, partition=1))


def partition_by_key(lab: Lab) -> Any:
    """the client chooses partitions by key"""
    topic = lab.topic(4)
    lab.client.produce(topic, [record(b"v%d" % n, b"key %d" % (n % 10), None) for n in range(50)])
    counts = [lab.witness.call("bounds", topic=topic, partition=partition)[1] for partition in range(4)]
    expect(sum(counts), 50)
    found = [lab.witness.fetch(topic, count, partition=partition) for partition, count in enumerate(counts)]
    return [sorted({key for (key,) in shown(records, "key")}) for records in found]


def topic_made_by_writing(lab: Lab) -> Any:
    """a topic that is not there is made"""
    topic = lab.name("auto")
    expect(lab.client.produce(topic, numbered(3)), [[0, 0], [0, 1], [0, 2]])
    return lab.witness.call("partitions", topic=topic)


def _written(lab: Lab, acks: str) -> Any:
    topic = lab.topic(2)
    records = numbered(50)
    expect(lab.client.produce(topic, records, acks), [[0, offset] for offset in range(50)])
    expect(shown(lab.witness.fetch(topic, 50)), sent(records))
