"""Transactions, and readers that see committed records only."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import QUIET_MS, Client, Lab, Record, eventually, expect, numbered, values

FEATURE = "transactions"
_TIMEOUT_MS = 20_000
_SHORT_TIMEOUT_MS = 3_000
"""Long enough that the transaction has records on a busy machine: a gateway aborts on time, a broker later."""
_TIMED_OUT_WITHIN_MS = 20_000
"""A broker searches for such transactions every ten seconds."""


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


def in_several_partitions(lab: Lab) -> Any:
    """a transaction in three partitions, read by another client"""
    topic, transaction = lab.topic(partitions=3), lab.name("x")
    lab.client.produce(topic, numbered(9, 3, prefix="lost"), transaction={"id": transaction, "end": "abort"})
    lab.client.produce(topic, numbered(9, 3), transaction={"id": transaction, "end": "commit"})
    for partition in range(3):
        found = _committed(lab.witness, topic, 3, partition=partition)
        expect(values(found), [f"v{partition + 3 * n}" for n in range(3)])


def of_another_client(lab: Lab) -> Any:
    """transactions of another client, committed and aborted"""
    topic, transaction = lab.topic(), lab.name("x")
    for number in range(4):
        end = "abort" if number % 2 else "commit"
        lab.witness.produce(topic, numbered(3, prefix=f"{end}{number}-"), transaction={"id": transaction, "end": end})
    found = _committed(lab.client, topic, 6)
    expect(values(found), [f"commit{number}-{n}" for number in (0, 2) for n in range(3)])


def uncommitted(lab: Lab) -> Any:
    """an open transaction is read by read_uncommitted alone"""
    topic = lab.topic()
    lab.client.call("open", topic=topic, records=numbered(3), id=lab.name("x"), timeout_ms=_TIMEOUT_MS)
    expect(values(lab.witness.fetch(topic, 3)), values(numbered(3)))
    expect(lab.witness.fetch(topic, 3, isolation="read_committed", timeout_ms=QUIET_MS), [])
    lab.client.call("finish", end="commit")
    expect(values(_committed(lab.witness, topic, 3)), values(numbered(3)))


def fenced(lab: Lab) -> Any:
    """a second producer of the same id fences the first one"""
    topic, transaction = lab.topic(), lab.name("x")
    lab.client.call("open", topic=topic, records=numbered(3, prefix="old"), id=transaction, timeout_ms=_TIMEOUT_MS)
    _write(lab.another(), topic, transaction, numbered(3))
    lab.client.error("finish", end="commit")
    expect(values(_committed(lab.witness, topic, 3)), values(numbered(3)))


def crashed(lab: Lab) -> Any:
    """a producer that is killed in a transaction, and its successor"""
    topic, transaction, victim = lab.topic(), lab.name("x"), lab.another()
    victim.call("open", topic=topic, records=numbered(3, prefix="old"), id=transaction, timeout_ms=_TIMEOUT_MS)
    victim.kill()
    _write(lab.client, topic, transaction, numbered(3))
    expect(values(_committed(lab.client, topic, 3)), values(numbered(3)))


def timed_out(lab: Lab) -> Any:
    """a transaction that takes too long is aborted, and its producer is fenced"""
    topic, transaction = lab.topic(), lab.name("x")
    late = {"records": numbered(3, prefix="late"), "id": transaction, "timeout_ms": _SHORT_TIMEOUT_MS}
    lab.client.call("open", topic=topic, **late)
    lab.witness.produce(topic, numbered(1))
    found = lab.witness.fetch(topic, 1, isolation="read_committed", timeout_ms=_TIMED_OUT_WITHIN_MS)
    expect(values(found), ["v0"])
    lab.client.error("finish", end="commit")
    _write(lab.another(), topic, transaction, numbered(2, prefix="next"))
    expect(values(_committed(lab.witness, topic, 3)), ["next0", "next1", "v0"])


def copied(lab: Lab) -> Any:
    """consume, transform, produce: records and offsets are committed together"""
    source, target, group = lab.topic(suffix="from"), lab.topic(suffix="to"), lab.name("g")
    lab.witness.produce(source, numbered(5), transaction={"id": lab.name("w"), "end": "commit"})
    _copy(lab, source, target, group, "commit")
    expect(values(_committed(lab.witness, target, 5)), values(numbered(5)))
    eventually(lambda: lab.witness.call("committed", group=group, topic=source, partition=0) in (5, 6), True)


def copied_in_vain(lab: Lab) -> Any:
    """consume, transform, produce: of an abort there are neither records nor offsets"""
    source, target, group = lab.topic(suffix="from"), lab.topic(suffix="to"), lab.name("g")
    lab.witness.produce(source, numbered(5))
    _copy(lab, source, target, group, "abort")
    expect(lab.witness.fetch(target, 5, isolation="read_committed", timeout_ms=QUIET_MS), [])
    eventually(lambda: lab.witness.call("committed", group=group, topic=source, partition=0), None)
    _copy(lab, source, target, group, "commit")
    expect(values(_committed(lab.witness, target, 5)), values(numbered(5)))
    eventually(lambda: lab.witness.call("committed", group=group, topic=source, partition=0), 5)


def _copy(lab: Lab, source: str, target: str, group: str, end: str) -> None:
    request = {"source": source, "topic": target, "group": group, "id": lab.name("x"), "count": 5, "end": end}
    expect(lab.client.call("copy", **request, timeout_ms=_TIMEOUT_MS), 5)


def _write(client: Client, topic: str, transaction: str, records: list[Record]) -> None:
    client.produce(topic, records, transaction={"id": transaction, "end": "commit"})


def _committed(client: Client, topic: str, count: int, partition: int = 0) -> list[Record]:
    """All committed records, and one more if there is one."""
    found = client.fetch(topic, count, isolation="read_committed", partition=partition)
    after = max((each["offset"] for each in found), default=-1) + 1
    return found + client.fetch(topic, 1, after, isolation="read_committed", partition=partition, timeout_ms=QUIET_MS)
