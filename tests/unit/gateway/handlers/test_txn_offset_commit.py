"""Offsets of a transaction on an old connection may belong to the previous transaction (KAFKA-17754)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.group.messages import RefusedError
from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.handlers.groups import txn_offset_commit
from gateway.handlers.groups.txn_offset_commit import handle
from gateway.requests.call import ClosesConnection
from gateway.requests.group_topics import PartitionCounts
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import TxnOffsetCommitRequest

KEEPS_ITS_EPOCH, HAS_ANOTHER = 4, 5


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[int] = []
        """Connections of the accepted commits."""
        self.looked_up: list[Callable[[PartitionCounts], Reply]] = []
        """How the accepted commits continue when their topics are looked up."""
        self.is_evicted = False
        self._cluster = SimpleNamespace(offset_connections=NewestConnections(), groups=NoGroups())
        monkeypatch.setattr(txn_offset_commit, "with_counts", self._look_up)

    def _look_up(self, call: Any, topics: object, then: Callable[[PartitionCounts], Reply]) -> None:
        self.taken.append(call.client.number)
        self.looked_up.append(then)

    def commit(self, connection: int, version: int = KEEPS_ITS_EPOCH, transactional_id: str = "x") -> None:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        row = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id, producer_id=7, producer_epoch=0,
            topics=[topic(name="t", partitions=[row])],
        )  # fmt: skip
        client = SimpleNamespace(number=connection)
        handle(
            cast(
                Any,
                SimpleNamespace(
                    request=request, version=version, client=client, cluster=self._cluster, check_age=self._check_age
                ),
            )
        )

    def _check_age(self) -> None:
        if self.is_evicted:
            raise ClosesConnection("the gateway was evicted since the client connected")


class NoGroups:
    def run(self, *_: object) -> None:
        raise RefusedError(ErrorCode.NOT_COORDINATOR)


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


@pytest.mark.parametrize("happens", ["a newer connection", "an eviction", "nothing"])
async def test_a_commit_that_waited_for_its_topics_is_checked_again(
    monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """The client did not wait any longer: it has committed over another connection, and begun its next transaction."""
    scene = Scene(monkeypatch)
    scene.commit(1)
    if happens == "a newer connection":
        scene.commit(2)
    scene.is_evicted = happens == "an eviction"
    reply = scene.looked_up[0](PartitionCounts({"t": 1}, {"t": b"id"}))
    if happens == "nothing":
        assert (await reply.result()) is not None
    else:
        with pytest.raises(ClosesConnection):
            await reply.result()
