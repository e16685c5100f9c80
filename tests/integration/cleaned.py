"""Compacted topics with transactions, which the gateway cleans: what is written to them, and what is left."""

from __future__ import annotations

from tests.integration.entries.test_compaction import drop_uncompacted, part
from tests.integration.native import Admin
from tests.integration.transactional import Transactions
from tests.support.gateway_process import GatewayProcess

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000", "delete.retention.ms": "0"}


def compacted_entries(admin: Admin, topic: str) -> int:
    found: int = admin.topic("GET", part(topic), "/internalStats")["compactedLedger"]["entries"]
    return found


def compacted_ledger(admin: Admin, topic: str) -> int:
    """Negative if there is none."""
    found: int = admin.topic("GET", part(topic), "/internalStats")["compactedLedger"]["ledgerId"]
    return found


def write_rounds(producer: Transactions, topic: str, rounds: int, last: bytes) -> None:
    """About 1 kB each: a changelog that writes the same ten keys repeatedly, and aborts every third transaction."""
    for number in range(rounds):
        for key in range(10):
            producer.write(topic, b"%d " % number + 100 * b"x", key=b"hot %d" % key)
        if number % 3 == 2:
            producer.abort()
        else:
            producer.commit()
    for key in range(10):
        producer.write(topic, last, key=b"hot %d" % key)
    producer.commit()


def drop_and_restart(admin: Admin, gateway: GatewayProcess, topic: str) -> None:
    """Only what compaction kept remains, and the state of the topic in Pulsar."""
    drop_uncompacted(admin, topic)
    gateway.stop()
    gateway.start()
    gateway.wait_ready()


def values_by_key(pairs: list[tuple[bytes | None, bytes | None]], without: bytes = b"") -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key, value in pairs:
        if key is not None and value is not None and key != without:
            found.setdefault(key, []).append(value)
    return found
