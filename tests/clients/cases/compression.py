"""Each codec in both directions: the client writes and the witness reads, and the other way round."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, expect, record, sent, shown

FEATURE = "compression"
COUNT = 100


def write_gzip(lab: Lab) -> Any:
    """write gzip"""
    _write(lab, "gzip")


def read_gzip(lab: Lab) -> Any:
    """read gzip"""
    _read(lab, "gzip")


def write_snappy(lab: Lab) -> Any:
    """write snappy"""
    _write(lab, "snappy")


def read_snappy(lab: Lab) -> Any:
    """read snappy"""
    _read(lab, "snappy")


def write_lz4(lab: Lab) -> Any:
    """write lz4"""
    _write(lab, "lz4")


def read_lz4(lab: Lab) -> Any:
    """read lz4"""
    _read(lab, "lz4")


def write_zstd(lab: Lab) -> Any:
    """write zstd"""
    _write(lab, "zstd")


def read_zstd(lab: Lab) -> Any:
    """read zstd"""
    _read(lab, "zstd")


def _write(lab: Lab, codec: str) -> None:
    topic = lab.topic()
    records = [record(b"value %d " % n * 20, b"key %d" % n) for n in range(COUNT)]
    expect(lab.client.produce(topic, records, codec=codec), [[0, offset] for offset in range(COUNT)])
    expect(shown(lab.witness.fetch(topic, COUNT)), sent(records))


def _read(lab: Lab, codec: str) -> None:
    topic = lab.topic()
    records = [record(b"value %d " % n * 20, b"key %d" % n) for n in range(COUNT)]
    lab.witness.produce(topic, records, codec=codec)
    expect(shown(lab.client.fetch(topic, COUNT)), sent(records))
    expect(shown(lab.client.fetch(topic, COUNT - 33, 33)), sent(records, 0)[33:])
