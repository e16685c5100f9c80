"""Checks whether a batch belongs to an open transaction: the partition's leader asks the coordinator (KIP-890).

Without this check, a batch that arrives late would begin a transaction in the partition that no coordinator ever
ends. A coordinator on another gateway is asked by AddPartitionsToTxn (key 24) v5. A request holds all questions for
one gateway that come up in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import structlog

from coordinator.fleet.messages import Member
from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from gateway.background import TaskGroup
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions.adding import add_at_once
from gateway.fleet.peers import PeerLostError, Peers
from gateway.fleet.view import FleetView
from gateway.topics.topic_names import TRANSACTION_STATE
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

ANSWER_S = 10.0
VERSION = 5
ADDS_VERSION = 2
"""The `transaction.version` of clients that do not add partitions themselves: the leaders add them."""

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
log = structlog.get_logger()


@dataclass
class _Question:
    """A question about one transaction. Batches for the same partition wait for the same answer."""

    transactional_id: str
    producer: Producer
    add: bool
    answers: dict[TopicPartition, asyncio.Future[ErrorCode]] = field(default_factory=dict)

    def is_about(self, transactional_id: str, producer: Producer, *, add: bool) -> bool:
        return (self.transactional_id, self.producer, self.add) == (transactional_id, producer, add)

    def answer(self, codes: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> None:
        for partition, answer in self.answers.items():
            if not answer.done():
                answer.set_result(codes.get(partition, otherwise))


_Batch = dict[str, _Question]
"""The questions by transactional id: a request names each id only once."""


class Verifier:
    def __init__(self, coordinators: Coordinators[TransactionCoordinator], fleet: FleetView, peers: Peers) -> None:
        self._coordinators = coordinators
        self._fleet = fleet
        self._peers = peers
        self._waiting: dict[Member, list[_Batch]] = {}
        self._tasks = TaskGroup()

    async def close(self) -> None:
        """Open questions are answered NETWORK_EXCEPTION."""
        await self._tasks.close()

    async def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, *, add: bool
    ) -> ErrorCode:
        """NONE if the partition is part of the producer's open transaction. With `add`, the partition is added first.

        Other codes are those of AddPartitionsToTxn's newest version, or NETWORK_EXCEPTION if the coordinator could
        not be asked. `coordinator.transaction.version_errors` has the errors that clients get instead.
        """
        number = self._coordinators.partition_of(transactional_id)
        if number is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinator = self._fleet.leader(TRANSACTION_STATE, number)
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if coordinator.node_id == self._fleet.node_id and not add:
            return self._ask_here(transactional_id, producer, partition)
        question = self._question(coordinator, transactional_id, producer, add=add)
        answer = question.answers.get(partition)
        if answer is None:
            answer = question.answers[partition] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(answer)

    def verify_here(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> ErrorCode | None:
        """Like `verify` without `add`, but at once; None if this gateway does not coordinate the transaction."""
        number = self._coordinators.partition_of(transactional_id)
        coordinator = None if number is None else self._fleet.leader(TRANSACTION_STATE, number)
        if coordinator is None or coordinator.node_id != self._fleet.node_id:
            return None
        return self._ask_here(transactional_id, producer, partition)

    def _ask_here(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> ErrorCode:
        asked = AddPartitionsRequest(transactional_id, producer, frozenset({partition}))
        return self._coordinators.run(
            transactional_id, lambda coordinator, now_ms: coordinator.verify_partitions(asked)[partition]
        )

    def _question(self, coordinator: Member, transactional_id: str, producer: Producer, *, add: bool) -> _Question:
        """A question that is not sent yet. Another producer of the same id has its question in a separate request."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        batches = self._waiting.setdefault(coordinator, [])
        for batch in batches:
            question = batch.get(transactional_id)
            if question is None or question.is_about(transactional_id, producer, add=add):
                return batch.setdefault(transactional_id, _Question(transactional_id, producer, add))
        question = _Question(transactional_id, producer, add)
        batches.append({transactional_id: question})
        return question

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for coordinator, batches in waiting.items():
            for batch in batches:
                if coordinator.node_id == self._fleet.node_id:
                    for question in batch.values():
                        adding = self._tasks.run_once("adding to a transaction", self._add_here(question))
                        adding.add_done_callback(partial(_end, [question]))
                else:
                    asking = self._tasks.run_once("verification of transactions", self._send(coordinator, batch))
                    asking.add_done_callback(partial(_end, batch.values()))

    async def _add_here(self, question: _Question) -> None:
        """Adds all partitions at once: while one is being added, others would be refused."""
        asked = AddPartitionsRequest(
            question.transactional_id, question.producer, frozenset(question.answers), ADDS_VERSION
        )
        question.answer({}, await add_at_once(self._coordinators, asked))

    async def _send(self, coordinator: Member, batch: _Batch) -> None:
        codes: dict[str, dict[TopicPartition, ErrorCode]] = {}
        otherwise = ErrorCode.NETWORK_EXCEPTION
        try:
            response = await self._peers.ask(
                coordinator, VERSION, _request(batch.values()), AddPartitionsToTxnResponse, ANSWER_S
            )
            codes = _codes(response)
            otherwise = _refusal(response) or otherwise
        except PeerLostError as error:
            log.info("no response to AddPartitionsToTxn", node_id=coordinator.node_id, error=str(error))
        for question in batch.values():
            question.answer(codes.get(question.transactional_id, {}), otherwise)


def _end(questions: Iterable[_Question], task: asyncio.Task[None]) -> None:
    """The task has ended, perhaps before it began: no question stays open."""
    for question in questions:
        question.answer({}, ErrorCode.NETWORK_EXCEPTION)


def _request(questions: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            _Transaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.id,
                producer_epoch=question.producer.epoch,
                verify_only=not question.add,
                topics=[
                    _Transaction.AddPartitionsToTxnTopic(name=name, partitions=[number for _, number in some])
                    for name, some in groupby(sorted(question.answers), lambda partition: partition.topic)
                ],
            )
            for question in questions
        ]
    )


def _codes(response: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, ErrorCode]]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _refusal(response: AddPartitionsToTxnResponse) -> ErrorCode:
    """The error of the whole request. Clients must not learn that this gateway lacks a right."""
    code = ErrorCode(response.error_code)
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
