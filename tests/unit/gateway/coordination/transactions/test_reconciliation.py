"""A transaction that no coordinator will end is aborted, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    Producer,
)
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions.reconciliation import GRACE_S, OfGroups, Reconciliation
from gateway.log.registry import LogRegistry
from gateway.log.transactions.state import OpenTransaction
from gateway.log.transactions.verifications import Verifications
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import ConnectionLostError
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages import transactions as wire
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.unit.gateway.coordination.transactions.fake_fleet import Asked, FakeFleet, FakePeers

T = TypeVar("T")
MAX_TIMEOUT_MS = 900_000
LONG_S = MAX_TIMEOUT_MS / 1000 + GRACE_S + 1
PARTITION = TopicPartition("t", 0)
"""A partition that this gateway leads."""
ID, EPOCH = 7, 2


class OpenLog:
    """The log of one partition, as far as reconciliation knows it."""

    def __init__(self) -> None:
        self.loaded = True
        self.open = {ID: OpenTransaction(EPOCH, 5, coordinator_epoch=3)}
        self.verifications = Verifications()
        self.suspected: list[int] = []
        self.comes_from_another_cluster: bool | Exception = False

    async def is_copied(self, first_offset: int) -> bool:
        if isinstance(self.comes_from_another_cluster, Exception):
            raise self.comes_from_another_cluster
        return self.comes_from_another_cluster

    def suspect_hanging(self, producer_id: int) -> None:
        self.suspected.append(producer_id)

    def of_producer(self, producer_id: int) -> OpenTransaction | None:
        return self.open.get(producer_id)

    def is_suspected(self, producer_id: int, first_offset: int) -> bool:
        found = self.open.get(producer_id)
        is_same = found is not None and found.first_offset == first_offset
        return is_same and self.verifications.epoch(producer_id) == NO_PRODUCER_EPOCH

    def coordinator_epoch(self, producer_id: int) -> int:
        return self.open[producer_id].coordinator_epoch


class OwnCoordinator:
    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.open: dict[str, DescribedTransaction] = {}

    def transactional_ids(self) -> list[str]:
        return [*self.open]

    def list_transactions(
        self, request: ListTransactionsRequest, now_ms: int, among: Iterable[str]
    ) -> ListTransactionsResponse:
        found = [
            ListedTransaction(name, each.producer.id, each.state)
            for name in among
            if (each := self.open.get(name)) is not None and each.producer.id in request.producer_ids
        ]
        return ListTransactionsResponse(self.error, (), found)

    def describe(self, name: str) -> DescribedTransaction:
        return self.open[name]


class OwnCoordinators(Coordinators[TransactionCoordinator]):
    def __init__(self) -> None:
        self.own = OwnCoordinator()
        partition = SimpleNamespace(run=lambda call: call(self.own, 0))
        self.partitions: Sequence[CoordinatorPartition[TransactionCoordinator]] = [cast(Any, partition)]

    def run(self, key: str, call: Callable[[TransactionCoordinator, int], T]) -> T:
        raise AssertionError("not asked by key")

    def leads(self, number: int) -> bool:
        return True


class Scene:
    def __init__(self, others: int = 0) -> None:
        self.fleet, self.peers, self.coordinators, self.log = FakeFleet(), FakePeers(), OwnCoordinators(), OpenLog()
        self.fleet.members = self.fleet.members[: 1 + others]
        self.now_s = 0.0
        self.metrics = Metrics()
        self.aborted: list[WriteTxnMarkersRequest] = []
        self.in_groups: list[tuple[TopicPartition, OfGroups]] = []
        logs = SimpleNamespace(all_open=lambda: [(PARTITION, SimpleNamespace(transactions=self.log))])
        self.reconciliation = Reconciliation(
            self.coordinators, self.fleet, self.peers, cast(LogRegistry, logs), lambda: self.in_groups, self._write,
            MAX_TIMEOUT_MS, self.metrics, lambda: self.now_s,
        )  # fmt: skip

    async def _write(self, request: WriteTxnMarkersRequest, wanted: Callable[[], bool]) -> WriteTxnMarkersResponse:
        if wanted():
            self.aborted.append(request)
        return WriteTxnMarkersResponse()

    async def check_when_old(self, times: int = 1) -> None:
        await self.reconciliation.check()
        self.now_s += LONG_S
        for _ in range(times):
            await self.reconciliation.check()
            self.now_s += 60

    def is_known(self, state: str = "Ongoing", partitions: Iterable[TopicPartition] = (PARTITION,)) -> None:
        self.coordinators.own.open["id"] = DescribedTransaction(
            ErrorCode.NONE, "id", state, 60_000, 1, Producer(ID, EPOCH), frozenset(partitions)
        )

    @property
    def hanging(self) -> float:
        return self.metrics.registry.get_sample_value("kafka_gateway_transactions_hanging") or 0


async def test_a_transaction_is_aborted_when_it_is_unknown_twice() -> None:
    scene = Scene()
    await scene.check_when_old()
    assert (scene.hanging, scene.aborted, scene.log.suspected) == (1, [], [ID])
    await scene.reconciliation.check()
    [request] = scene.aborted
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (ID, EPOCH, 3)
    assert not marker.transaction_result
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0])]
    scene.log.open.clear()
    await scene.reconciliation.check()
    assert scene.hanging == 0


@pytest.mark.parametrize("copied", [True, ConnectionLostError("lost"), TimeoutError()])
async def test_what_another_cluster_coordinates_is_not_aborted(copied: bool | Exception) -> None:
    """Its marker may come late, as when the clusters do not reach each other."""
    scene = Scene()
    scene.log.comes_from_another_cluster = copied
    await scene.check_when_old(3)
    assert (scene.hanging, scene.aborted) == (1, [])
    scene.log.comes_from_another_cluster = False
    await scene.reconciliation.check()
    assert scene.aborted


class OpenOffsets(OpenLog):
    """The offsets of one partition of groups."""

    def opened(self) -> list[tuple[int, int, int]]:
        return [(ID, EPOCH, 1)]


async def test_unknown_transactions_in_groups_are_aborted_too() -> None:
    scene = Scene()
    scene.log.open.clear()
    offsets = OpenOffsets()
    offsets.open[ID] = OpenTransaction(EPOCH, 1, coordinator_epoch=-1)
    scene.in_groups.append((TopicPartition("__consumer_offsets", 3), offsets))
    await scene.check_when_old(2)
    [request] = scene.aborted
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (ID, EPOCH, 0)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("__consumer_offsets", [3])]
    assert offsets.suspected == [ID, ID]


async def test_young_transactions_are_not_checked() -> None:
    scene = Scene(others=1)
    await scene.reconciliation.check()
    scene.now_s += LONG_S - 2
    await scene.reconciliation.check()
    assert scene.peers.asked.empty()
    assert not scene.log.suspected


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
async def test_what_its_coordinator_knows_stays(state: str) -> None:
    scene = Scene()
    scene.is_known(state)
    await scene.check_when_old(3)
    assert (scene.hanging, scene.aborted) == (0, [])


@pytest.mark.parametrize(
    ("state", "partitions"), [("Empty", [PARTITION]), ("CompleteCommit", []), ("Ongoing", [TopicPartition("t", 1)])]
)
async def test_a_coordinator_may_know_another_transaction(state: str, partitions: list[TopicPartition]) -> None:
    scene = Scene()
    scene.is_known(state, partitions)
    await scene.check_when_old(2)
    assert len(scene.aborted) == 1


async def test_a_transaction_with_a_batch_that_was_verified_since_is_kept() -> None:
    scene = Scene()
    await scene.check_when_old()
    asked = scene.log.verifications.begin(ID)
    scene.log.verifications.verified(asked, ID, EPOCH)
    await scene.reconciliation.check()
    assert not scene.aborted


async def test_the_next_transaction_of_the_producer_is_another() -> None:
    scene = Scene()
    await scene.check_when_old()
    scene.log.open[ID] = OpenTransaction(EPOCH, 9)
    await scene.reconciliation.check()
    assert not scene.aborted


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
async def test_nothing_is_concluded_while_a_coordinator_does_not_tell(error: ErrorCode) -> None:
    scene = Scene()
    scene.coordinators.own.error = error
    await scene.check_when_old(3)
    assert (scene.hanging, scene.aborted) == (0, [])


async def test_nothing_is_concluded_while_leaders_move() -> None:
    scene = Scene()
    await scene.check_when_old()
    scene.fleet.epoch += 1
    await scene.reconciliation.check()
    assert not scene.aborted
    await scene.reconciliation.check()
    assert len(scene.aborted) == 1


async def answer(asked: Asked, *, name: str | None, code: ErrorCode = ErrorCode.NONE) -> None:
    if isinstance(asked.request, wire.ListTransactionsRequest):
        assert asked.request.producer_id_filters == [ID]
        row = wire.ListTransactionsResponse.TransactionState
        listed = [] if name is None else [row(transactional_id=name, producer_id=ID, transaction_state="Ongoing")]
        asked.answer.set_result(wire.ListTransactionsResponse(error_code=code, transaction_states=listed))
        return
    assert isinstance(asked.request, wire.DescribeTransactionsRequest)
    state = wire.DescribeTransactionsResponse.TransactionState
    topics = [state.TopicData(topic="t", partitions=[0])]
    described = [
        state(transactional_id=each, transaction_state="Ongoing", producer_id=ID, topics=topics)
        for each in asked.request.transactional_ids
    ]
    asked.answer.set_result(wire.DescribeTransactionsResponse(transaction_states=described))


@pytest.mark.parametrize("name", [None, "id"])
async def test_other_gateways_are_asked_too(name: str | None) -> None:
    scene = Scene(others=1)
    checking = asyncio.create_task(scene.check_when_old(2))
    for _ in range(4):
        await answer(await scene.peers.next(), name=name)
    await checking
    assert len(scene.aborted) == (name is None)


async def test_nothing_is_concluded_while_another_gateway_does_not_answer() -> None:
    scene = Scene(others=2)
    checking = asyncio.create_task(scene.check_when_old(1))
    asked = [await scene.peers.next(), await scene.peers.next()]
    asked[0].lose()
    await answer(asked[1], name=None, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await checking
    assert (scene.hanging, scene.aborted) == (0, [])
