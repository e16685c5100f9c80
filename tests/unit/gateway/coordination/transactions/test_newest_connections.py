"""The newest connection of a producer is known, for a bounded number of producers."""

from __future__ import annotations

import pytest

from coordinator.transaction.messages import Producer
from gateway.coordination.transactions import newest_connections
from gateway.coordination.transactions.newest_connections import NewestConnections


def test_an_older_connection_is_known_as_such() -> None:
    connections, producer = NewestConnections(), Producer(5, 0)
    assert connections.record_use("x", producer, 3)
    assert connections.record_use("x", producer, 3)
    assert connections.record_use("x", producer, 8)
    assert not connections.record_use("x", producer, 3)
    assert connections.record_use("x", producer, 8)
    assert connections.record_use("x", Producer(5, 1), 3)
    assert connections.record_use("y", producer, 3)


def test_long_names_take_no_more_memory() -> None:
    """Any client may name ids of 32 KB, whether they exist or not."""
    connections, producer = NewestConnections(), Producer(5, 0)
    long = "x" * 32_767
    for name in (long, long + "y"):
        assert connections.record_use(name, producer, 8)
        assert not connections.record_use(name, producer, 3)
    assert all(len(name) <= 64 for name, _ in connections._numbers)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_connections, "MAX_PRODUCERS", 2)
    connections = NewestConnections()
    for number in (1, 2):
        assert connections.record_use("x", Producer(number, 0), 9)
    assert not connections.record_use("x", Producer(1, 0), 8)
    assert connections.record_use("x", Producer(3, 0), 9)
    assert connections.record_use("x", Producer(2, 0), 8)
    assert not connections.record_use("x", Producer(3, 0), 8)
