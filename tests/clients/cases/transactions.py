"""Transactions, and readers that see only what was committed."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import QUIET_MS, Lab, expect, numbered, values

FEATURE = "transactions"


def committed(lab: Lab) -> Any:
    """a committed transaction is read"""
    topic = lab.topic()
    lab.client.produce(topic, numbered(10), transaction={"id": lab.name("x"), "end": "commit"})
    expect(values(lab.client.fetch(topic, 10, isolation="read_committed")), values(numbered(10)))


def aborted(lab: Lab) -> Any:
    """an aborted transaction is not"""
    topic, transaction = lab.topic(), lab.name("x")
    lab.client.produce(topic, numbered(10), transaction={"id": transaction, "end": "abort"})
    lab.client.produce(topic, numbered(3, prefix="kept"), transaction={"id": transaction, "end": "commit"})
    found = lab.client.fetch(topic, 99, isolation="read_committed", timeout_ms=QUIET_MS * 3)
    expect(values(found), ["kept0", "kept1", "kept2"])


def of_plain_records(lab: Lab) -> Any:
    """read_committed on a topic without transactions"""
    topic = lab.topic()
    lab.witness.produce(topic, numbered(10))
    expect(values(lab.client.fetch(topic, 10, isolation="read_committed")), values(numbered(10)))
