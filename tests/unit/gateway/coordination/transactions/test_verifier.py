"""A partition's leader verifies with the coordinator of a transactional id: directly, or with one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions.verifier import VERSION, Verifier
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tests.unit.gateway.coordination.transactions.fake_fleet import Asked, FakeFleet, FakePeers

T = TypeVar("T")
PRODUCER = Producer(5, 1)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class OwnCoordinator:
    """Has one transaction, of "a0", with the first partition."""

    def __init__(self) -> None:
        self.adding: list[AddPartitionsRequest] = []
        self.answers = True

    def verify_partitions(self, request: AddPartitionsRequest) -> dict[TopicPartition, ErrorCode]:
        return {
            partition: ErrorCode.NONE if partition == FIRST else ErrorCode.TRANSACTION_ABORTABLE
            for partition in request.partitions
        }

    def add_partitions(self, request: AddPartitionsRequest, now_ms: int, reply: Callable[[ErrorCode], None]) -> None:
        self.adding.append(request)
        if self.answers:
            reply(ErrorCode.NONE)


class OwnCoordinators(Coordinators[TransactionCoordinator]):
    """An id's last digit is its partition."""

    def __init__(self) -> None:
        self.own = OwnCoordinator()
        self.is_known = True

    def run(self, key: str, call: Callable[[TransactionCoordinator, int], T]) -> T:
        return call(cast(TransactionCoordinator, self.own), 0)

    def leads(self, number: int) -> bool:
        return number == 0

    def partition_of(self, key: str) -> int | None:
        return int(key[1:]) if self.is_known else None


class Scene:
    def __init__(self) -> None:
        self.coordinators, self.peers = OwnCoordinators(), FakePeers()
        self.verifier = Verifier(self.coordinators, FakeFleet(), self.peers)

    def ask(
        self, name: str, partition: TopicPartition, *, add: bool = False, producer: Producer = PRODUCER
    ) -> asyncio.Task[ErrorCode]:
        return asyncio.create_task(self.verifier.verify(name, producer, partition, add=add))


def transactions(asked: Asked) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]:
    assert isinstance(asked.request, AddPartitionsToTxnRequest)
    assert asked.version == VERSION
    return asked.request.transactions


def response(codes: dict[str, dict[int, ErrorCode]]) -> AddPartitionsToTxnResponse:
    result: Any = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    topic = result.AddPartitionsToTxnTopicResult
    row = topic.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            result(
                transactional_id=name,
                topic_results=[
                    topic(
                        name="t",
                        results_by_partition=[
                            row(partition_index=number, partition_error_code=code) for number, code in found.items()
                        ],
                    )
                ],
            )
            for name, found in codes.items()
        ]
    )


async def test_the_own_coordinator_is_asked_at_once() -> None:
    scene = Scene()
    assert await scene.verifier.verify("a0", PRODUCER, FIRST, add=False) is ErrorCode.NONE
    assert await scene.verifier.verify("a0", PRODUCER, SECOND, add=False) is ErrorCode.TRANSACTION_ABORTABLE
    assert scene.peers.asked.empty()


def test_only_the_own_coordinator_answers_without_waiting() -> None:
    scene = Scene()
    assert scene.verifier.verify_here("a0", PRODUCER, FIRST) is ErrorCode.NONE
    assert scene.verifier.verify_here("a0", PRODUCER, SECOND) is ErrorCode.TRANSACTION_ABORTABLE
    assert scene.verifier.verify_here("a1", PRODUCER, FIRST) is None
    scene.coordinators.is_known = False
    assert scene.verifier.verify_here("a0", PRODUCER, FIRST) is None


async def test_partitions_of_one_moment_are_added_together() -> None:
    scene = Scene()
    answers = [scene.ask("a0", FIRST, add=True), scene.ask("a0", SECOND, add=True), scene.ask("b0", FIRST, add=True)]
    assert await asyncio.gather(*answers) == [ErrorCode.NONE] * 3
    assert [
        (each.transactional_id, each.partitions, each.client_version) for each in scene.coordinators.own.adding
    ] == [
        ("a0", {FIRST, SECOND}, 2),
        ("b0", {FIRST}, 2),
    ]


async def test_another_gateway_gets_one_request_for_all() -> None:
    scene = Scene()
    answers = [scene.ask("a1", FIRST), scene.ask("a1", SECOND), scene.ask("a1", FIRST), scene.ask("b1", FIRST)]
    asked = await scene.peers.next()
    assert asked.member.node_id == 1
    [first, second] = transactions(asked)
    assert (first.transactional_id, first.producer_id, first.producer_epoch, first.verify_only) == ("a1", 5, 1, True)
    assert [(topic.name, topic.partitions) for topic in first.topics] == [("t", [0, 1])]
    assert second.transactional_id == "b1"
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    asked.answer.set_result(response({"a1": {0: ErrorCode.NONE, 1: abortable}, "b1": {0: abortable}}))
    assert await asyncio.gather(*answers) == [ErrorCode.NONE, abortable, ErrorCode.NONE, abortable]


async def test_a_request_names_a_transactional_id_once() -> None:
    """Of two producers with one id, at most one is not fenced: each gets its own result."""
    scene = Scene()
    other = Producer(5, 2)
    answers = [scene.ask("a1", FIRST), scene.ask("a1", FIRST, producer=other), scene.ask("a1", FIRST, add=True)]
    for _ in range(3):
        asked = await scene.peers.next()
        [transaction] = transactions(asked)
        code = ErrorCode.NONE if transaction.producer_epoch == 2 else ErrorCode.PRODUCER_FENCED
        asked.answer.set_result(response({"a1": {0: code}}))
    assert await asyncio.gather(*answers) == [ErrorCode.PRODUCER_FENCED, ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]


async def test_coordinators_that_cannot_be_reached() -> None:
    scene = Scene()
    answer = scene.ask("a1", FIRST)
    (await scene.peers.next()).lose()
    assert await answer is ErrorCode.NETWORK_EXCEPTION
    assert await scene.ask("a-1", FIRST) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    scene.coordinators.is_known = False
    assert await scene.ask("a1", FIRST) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_refusal_of_the_whole_request() -> None:
    for code, told in (
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION),  # the response lacks the transaction
    ):
        scene = Scene()
        answer = scene.ask("a1", FIRST)
        (await scene.peers.next()).answer.set_result(AddPartitionsToTxnResponse(error_code=code))
        assert await answer is told


async def test_a_caller_that_leaves_does_not_affect_others() -> None:
    scene = Scene()
    leaving, staying = scene.ask("a1", FIRST), scene.ask("a1", FIRST)
    asked = await scene.peers.next()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    asked.answer.set_result(response({"a1": {0: ErrorCode.NONE}}))
    assert await staying is ErrorCode.NONE


async def test_closing_answers_what_is_under_way() -> None:
    scene = Scene()
    answer = scene.ask("a1", FIRST)
    await scene.peers.next()
    await scene.verifier.close()
    assert await answer is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize(("name", "add"), [("a0", True), ("a1", False)])
async def test_closing_answers_what_has_not_begun(name: str, add: bool, turns: int) -> None:
    """After `turns` turns of the event loop: nothing, the question, or also the task that asks it."""
    scene = Scene()
    scene.coordinators.own.answers = False
    answer = scene.ask(name, FIRST, add=add)
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    await scene.verifier.close()
    async with asyncio.timeout(5):
        assert await answer is ErrorCode.NETWORK_EXCEPTION


async def test_a_question_after_the_end_is_answered() -> None:
    scene = Scene()
    await scene.verifier.close()
    async with asyncio.timeout(5):
        assert await scene.verifier.verify("a1", PRODUCER, FIRST, add=False) is ErrorCode.NETWORK_EXCEPTION
