"""Finds and counts transactions that no coordinator will end, and aborts them in partitions that this gateway leads.

Verification prevents such transactions. One remains if its coordinator has lost its state, for example because
`__transaction_state` was deleted. Consumers that read only committed records would be blocked there for ever. A
transaction that is open for longer than the longest timeout is suspected to hang: its producer's batches are verified
again. Then all gateways are asked for the producer's transaction (ListTransactions and DescribeTransactions). If, twice
in a row, no gateway knows the partition as part of an open transaction, the transaction is aborted there, unless one of
its batches was verified meanwhile, or it came from another cluster, whose coordinators are not asked. While a gateway
does not answer, or leaders move, nothing is decided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.fleet.messages import Member
from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import ListTransactionsRequest as ListRequest
from coordinator.transaction.states import PREPARED, TransactionState
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions.listing import list_transactions
from gateway.fleet.peers import PeerLostError, Peers
from gateway.fleet.view import FleetView
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.kafka.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

CHECK_S = 60.0
GRACE_S = 60.0
"""Coordinators have ended a transaction by this time after the longest transaction timeout."""
ANSWER_S = 30.0
_OPEN_STATES = frozenset(state.value for state in PREPARED | {TransactionState.ONGOING})

WriteIfWanted = Callable[[WriteTxnMarkersRequest, Callable[[], bool]], Awaitable[WriteTxnMarkersResponse]]
"""Writes markers as the partitions' leader. A marker is skipped if it is no longer wanted when it is appended."""
log = structlog.get_logger()


class PartitionTransactions(Protocol):
    """The transactions of a partition that this gateway leads."""

    def suspect_hanging(self, producer_id: int) -> None:
        """Lets the producer's batches be verified again, although its transaction is open."""

    def is_suspected(self, producer_id: int, first_offset: int) -> bool:
        """The transaction that began there is still open, and none of its batches was verified since."""

    async def is_copied(self, first_offset: int) -> bool:
        """Another cluster coordinates the transaction that began there. Raises PulsarError and TimeoutError."""

    def coordinator_epoch(self, producer_id: int) -> int:
        """The coordinator epoch of the producer's last marker; -1 if it is not known."""


class OfGroups(PartitionTransactions, Protocol):
    """The transactions of a partition of `__consumer_offsets`."""

    def opened(self) -> Iterable[tuple[int, int, int]]:
        """(producer id, its epoch, where the transaction began); nothing if this gateway does not lead it."""


class _Open(NamedTuple):
    """A transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


class _Unknown(Exception):
    """Not every coordinator has answered; the text gives the reason."""


class Reconciliation:
    def __init__(
        self,
        coordinators: Coordinators[TransactionCoordinator],
        fleet: FleetView,
        peers: Peers,
        logs: LogRegistry,
        in_groups: Callable[[], Iterable[tuple[TopicPartition, OfGroups]]],
        write: WriteIfWanted,
        max_timeout_ms: int,
        metrics: Metrics,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinators = coordinators
        self._fleet = fleet
        self._peers = peers
        self._logs = logs
        self._in_groups = in_groups
        self._write = write
        self._limit_s = max_timeout_ms / 1000 + GRACE_S
        self._metrics = metrics
        self._now_s = now_s
        self._seen_s: dict[_Open, float] = {}
        """When this gateway first saw each transaction open."""
        self._suspects: frozenset[_Open] = frozenset()
        """The transactions that no coordinator knew at the last check, followed by the fleet's epoch at that time."""
        self._suspected_in = -1

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check()

    async def check(self) -> None:
        now_s = self._now_s()
        found = dict(self._led())
        self._seen_s = {each: self._seen_s.get(each, now_s) for each in found}
        old = [each for each, seen_s in self._seen_s.items() if now_s - seen_s > self._limit_s]
        epoch = self._fleet.epoch
        hanging: frozenset[_Open] = frozenset()
        if old:
            for each in old:
                found[each].suspect_hanging(each.producer_id)
            try:
                known = await self._known({each.producer_id for each in old})
                hanging = frozenset(each for each in old if (each.producer_id, each.partition) not in known)
            except _Unknown as error:
                log.info("cannot find hanging transactions", error=str(error))
                return
        self._metrics.transactions_hanging.set(len(hanging))
        if epoch == self._fleet.epoch == self._suspected_in:
            for each in hanging & self._suspects:
                if not await _is_copied(each, found[each]):
                    await self._abort(each, found[each])
        self._suspects, self._suspected_in = hanging, epoch

    def _led(self) -> Iterator[tuple[_Open, PartitionTransactions]]:
        for key, opened in self._logs.all_open():
            transactions = opened.transactions
            if not transactions.loaded or self._fleet.role(*key) is not PartitionRole.LEADING:
                continue
            for producer_id, each in transactions.open.items():
                yield _Open(TopicPartition(*key), producer_id, each.producer_epoch, each.first_offset), transactions

        for partition, in_groups in self._in_groups():
            for producer_id, epoch, first in in_groups.opened():
                yield _Open(partition, producer_id, epoch, first), in_groups

    async def _abort(self, hanging: _Open, transactions: PartitionTransactions) -> None:
        def is_wanted() -> bool:
            return transactions.is_suspected(hanging.producer_id, hanging.first_offset)

        log.warning("aborting a transaction that no coordinator knows", **hanging._asdict())
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(
            name=hanging.partition.topic, partition_indexes=[hanging.partition.partition]
        )
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=hanging.producer_id,
                    producer_epoch=hanging.producer_epoch,
                    transaction_result=False,
                    topics=[topic],
                    coordinator_epoch=max(0, transactions.coordinator_epoch(hanging.producer_id)),
                )
            ]
        )
        await self._write(request, is_wanted)

    # What the coordinators know

    async def _known(self, producer_ids: Collection[int]) -> set[tuple[int, TopicPartition]]:
        """The partitions of these producers' open transactions. Raises _Unknown."""
        answers = await asyncio.gather(*(self._known_to(member, producer_ids) for member in self._fleet.members))
        return set().union(*answers)

    async def _known_to(self, member: Member, producer_ids: Collection[int]) -> set[tuple[int, TopicPartition]]:
        if member.node_id == self._fleet.node_id:
            return await self._known_here(producer_ids)
        try:
            listed = await self._peers.ask(
                member, 0, ListTransactionsRequest(producer_id_filters=[*producer_ids]), ListTransactionsResponse,
                ANSWER_S,
            )  # fmt: skip
            _check(ErrorCode(listed.error_code), member)
            names = [each.transactional_id for each in listed.transaction_states]
            described = await self._peers.ask(
                member, 0, DescribeTransactionsRequest(transactional_ids=names), DescribeTransactionsResponse, ANSWER_S
            )
        except PeerLostError as error:
            raise _Unknown(f"gateway {member.node_id}: {error}") from error
        known = set()
        for each in described.transaction_states:
            _check(ErrorCode(each.error_code), member)
            if each.transaction_state in _OPEN_STATES:
                known |= {
                    (each.producer_id, TopicPartition(topic.topic, number))
                    for topic in each.topics
                    for number in topic.partitions
                }
        return known

    async def _known_here(self, producer_ids: Collection[int]) -> set[tuple[int, TopicPartition]]:
        asked = ListRequest(frozenset(producer_ids))
        if not self._coordinators.partitions:
            raise _Unknown("the coordinators are not ready")
        known = set()
        for number, partition in enumerate(self._coordinators.partitions):
            if not self._coordinators.leads(number):
                continue
            listed = await list_transactions(partition, asked)
            if listed.error:
                raise _Unknown(f"partition {number}: {listed.error.name}")
            for each in listed.transactions:
                name = each.transactional_id
                described = partition.run(lambda coordinator, now_ms, name=name: coordinator.describe(name))  # type: ignore[misc]
                if described.state in _OPEN_STATES:
                    known |= {(described.producer.id, each_of) for each_of in described.partitions}
        return known


async def _is_copied(hanging: _Open, transactions: PartitionTransactions) -> bool:
    """The marker of such a transaction comes from its cluster, however late. One from here would be copied there, and
    end another transaction of the producer."""
    try:
        return await transactions.is_copied(hanging.first_offset)
    except (PulsarError, TimeoutError) as error:
        log.info("cannot find out where a transaction came from", **hanging._asdict(), error=str(error))
        return True


def _check(error: ErrorCode, member: Member) -> None:
    if error:
        raise _Unknown(f"gateway {member.node_id}: {error.name}")
