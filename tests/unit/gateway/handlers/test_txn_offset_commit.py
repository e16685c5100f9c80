"""Offsets of a transaction on an old connection may belong to the previous transaction (KAFKA-17754)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.handlers.groups import txn_offset_commit
from gateway.handlers.groups.txn_offset_commit import handle
from gateway.requests.call import ClosesConnection
from protocol.kafka.messages.groups import TxnOffsetCommitRequest

KEEPS_ITS_EPOCH, HAS_ANOTHER = 4, 5


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[int] = []
        """Connections of the accepted commits."""
        self._cluster = SimpleNamespace(offset_connections=NewestConnections())
        monkeypatch.setattr(
            txn_offset_commit, "with_counts", lambda call, *_: self.taken.append(call.client.number)
        )

    def commit(self, connection: int, version: int = KEEPS_ITS_EPOCH, transactional_id: str = "x") -> None:
        request = TxnOffsetCommitRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=0)
        client = SimpleNamespace(number=connection)
        handle(cast(Any, SimpleNamespace(request=request, version=version, client=client, cluster=self._cluster)))


def test_an_older_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.commit(1)
    scene.commit(2)
    with pytest.raises(ClosesConnection):
        scene.commit(1)
    scene.commit(2)
    assert scene.taken == [1, 2, 2]


def test_where_each_transaction_has_an_epoch_any_connection_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.commit(2, HAS_ANOTHER)
    scene.commit(1, HAS_ANOTHER)
    assert scene.taken == [2, 1]


def test_a_client_that_names_the_producer_of_another_id_closes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.commit(1)
    scene.commit(2, transactional_id="of another client")
    scene.commit(1)
    assert scene.taken == [1, 2, 1]
