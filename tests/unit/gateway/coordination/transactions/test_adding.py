"""Partitions are added when the previous transaction is complete, or fail after a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions import adding
from gateway.coordination.transactions.adding import add_when_free
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.transactions.fake_fleet import WAIT_S, until

T = TypeVar("T")
REQUEST = AddPartitionsRequest("id", Producer(5, 1), frozenset({TopicPartition("t", 0)}))


class BusyCoordinator:
    def __init__(self) -> None:
        self.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
        self.waiting: list[Callable[[], None]] = []

    def add_partitions(self, request: AddPartitionsRequest, now_ms: int, reply: Callable[[ErrorCode], None]) -> None:
        reply(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def notify_when_free(self, name: str, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def stop_notifying(self, name: str, call: Callable[[], None]) -> None:
        if call in self.waiting:
            self.waiting.remove(call)

    def free(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


class OwnCoordinators(Coordinators[TransactionCoordinator]):
    def __init__(self) -> None:
        self.own = BusyCoordinator()

    def run(self, key: str, call: Callable[[TransactionCoordinator, int], T]) -> T:
        return call(cast(TransactionCoordinator, self.own), 0)

    def leads(self, number: int) -> bool:
        return True


async def test_it_continues_when_the_previous_transaction_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "PATIENCE_S", WAIT_S)
    coordinators = OwnCoordinators()
    answer = asyncio.create_task(add_when_free(coordinators, REQUEST))
    await until(lambda: bool(coordinators.own.waiting))
    assert not answer.done()
    coordinators.own.free()
    assert await answer is ErrorCode.NONE


async def test_another_request_may_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "PATIENCE_S", WAIT_S)
    coordinators = OwnCoordinators()
    coordinators.own.answers.insert(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    answer = asyncio.create_task(add_when_free(coordinators, REQUEST))
    for _ in range(2):
        await until(lambda: bool(coordinators.own.waiting))
        coordinators.own.free()
    assert await answer is ErrorCode.NONE


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "PATIENCE_S", 0.01)
    coordinators = OwnCoordinators()
    coordinators.own.answers = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await add_when_free(coordinators, REQUEST) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not coordinators.own.waiting


async def test_a_client_that_disconnects_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "PATIENCE_S", WAIT_S)
    coordinators = OwnCoordinators()
    answer = asyncio.create_task(add_when_free(coordinators, REQUEST))
    await until(lambda: bool(coordinators.own.waiting))
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    assert not coordinators.own.waiting


async def test_other_answers_are_given_at_once() -> None:
    coordinators = OwnCoordinators()
    coordinators.own.answers = [ErrorCode.PRODUCER_FENCED]
    assert await add_when_free(coordinators, REQUEST) is ErrorCode.PRODUCER_FENCED
