"""A trial of a region to which another one only replicates transactions."""

from __future__ import annotations

from collections import Counter

from deploy.topology.description import Kind
from gateway.log.bounds.transaction_flag import CHECKPOINT_AT
from tests.regions.geo import Row, new_topic
from tests.regions.geo_transactional import SETTLED_S
from tests.regions.lab import Lab, until
from tests.support.traffic.transaction_history import TransactionHistory, check
from tests.support.traffic.transactional_traffic import Writer, read_rows, stop_all

TRANSACTIONS = 400
"""Five entries each: more than what follows one checkpoint."""


def open_copies_again(lab: Lab) -> Row:
    """eu writes transactions, and aborts some. us only gets copies, and its gateway is restarted.

    It writes a checkpoint of its own, which is not replicated. Committed reads are right before and after.
    """
    topic = new_topic(lab, "copies", 1)
    writer = Writer(lab.only("eu"), topic, 1, f"{topic}-eu", 1, 0.0)
    writer.start()
    until(lambda: len(writer.transactions) >= TRANSACTIONS, "enough is written")
    stop_all([writer])
    expected = _values(lab, "eu", topic, "read_uncommitted")
    until(lambda: _values(lab, "us", topic, "read_uncommitted") == expected, "all is in us", SETTLED_S)
    _check(lab, topic, writer)
    written_s = until(lambda: _own_checkpoint(lab, "us", topic), "us has a checkpoint of its own")
    for gateway in lab.topology.of(Kind.GATEWAY, region="us"):
        lab.cluster.stop(gateway.name)
        lab.cluster.start(gateway.name)
    _check(lab, topic, writer)
    assert _values(lab, "eu", topic, "read_uncommitted") == expected
    return {
        "transactions": str(len(writer.transactions)),
        "lost": "0",
        "doubled": "0",
        "us had its own checkpoint": f"{written_s:.1f} s after it had all",
    }


def _check(lab: Lab, topic: str, writer: Writer) -> None:
    for region in ("eu", "us"):
        found = TransactionHistory(writer.transactions)
        found.everything[0] = read_rows(lab.only(region), topic, 0, "read_uncommitted")
        found.committed[0] = read_rows(lab.only(region), topic, 0, "read_committed")
        check(found)


def _values(lab: Lab, region: str, topic: str, isolation: str) -> Counter[bytes]:
    return Counter(value for _, value in read_rows(lab.only(region), topic, 0, isolation))


def _own_checkpoint(lab: Lab, region: str, topic: str) -> str:
    held = lab.admin(region).call("GET", f"persistent/{lab.namespace}/{topic}-partition-0/internal-info")
    return str((held.get("properties") or {}).get(CHECKPOINT_AT, ""))
