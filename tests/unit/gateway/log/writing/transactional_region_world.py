"""A model of two clusters, which replicate to each other, with two transactional producers and an idempotent one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, cast

from gateway.errors import KafkaError
from gateway.log.bounds.log_bounds import LogBounds, read_bounds
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.log.transactions.verifications import VerificationLostError
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from protocol.kafka.batch import BatchHeader, iter_headers, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.transactions.transaction_scene import shared_on
from tests.unit.gateway.log.writing.idempotent_broker import RECORDS, Gateway
from tests.unit.gateway.log.writing.idempotent_world import BATCHES, RETRIED, Connection, Leader
from tests.unit.gateway.log.writing.region_world import Client, Region, Regions

SIZE = 2
"""Batches of a transaction."""
NEW_ID = 10
"""A client that goes to the other cluster gets another producer id, which is higher by this."""
RETRY_S = 0.001


class TransactionalGateway(Gateway):
    async def bounds(self) -> LogBounds:
        return await read_bounds(cast(PulsarClient, self.broker), cast(AdminClient, self.broker), "topic")


class TransactionalRegion(Region):
    gateway_class = TransactionalGateway

    def write_native(self) -> None:
        """A message of a native producer. Gateways name a checkpoint in each entry of a log with transactions."""
        self.write_all()
        FakeTopic.write(self, b"", 1, "native", 0, native=True)


class TransactionalConnection(Connection):
    """Every batch begins with a question to the coordinator whether its transaction is ongoing."""

    def __init__(self, gateway: Gateway, leader: Leader, producer_id: int) -> None:
        self.first, self.decided = 0, [0]
        """The number of the producer's first batch, and of the first one that is not decided."""
        super().__init__(gateway, leader, producer_id)

    def batch(self, number: int) -> tuple[memoryview, BatchHeader]:
        records = [Record(delta, 1_000, None, b"%d" % number, ()) for delta in range(RECORDS)]
        sequence = (number - self.first) * RECORDS
        data = encode_batch(
            records, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        return memoryview(data), parse_header(data)

    async def prepare(self, log: PartitionLog, header: BatchHeader) -> None:
        await super().prepare(log, header)
        writes = log.transactional_writes
        if writes.needs_verification(header):
            if self.first + header.base_sequence // RECORDS < self.decided[0]:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            verification = writes.verifications.begin(self.producer_id)
            writes.verifications.verified(verification, self.producer_id, header.producer_epoch)


class TransactionalClient(Client):
    """Has each transaction ended when its batches are acknowledged, and begins the next one after that."""

    retried = RETRIED | {VerificationLostError().code}
    connection_class = TransactionalConnection
    connection: TransactionalConnection

    def __init__(self, producer_id: int, region: Region) -> None:
        self.first, self.decided = 0, [0]
        self.ending: asyncio.Task[None] | None = None
        self.producer_ids = {producer_id: 0}
        """With the number of the first batch of each."""
        super().__init__(producer_id, region)
        self._tell_connection()

    def _tell_connection(self) -> None:
        self.connection.first, self.connection.decided = self.first, self.decided

    @property
    def done(self) -> bool:
        return super().done and self.decided[0] == BATCHES

    def send(self) -> None:
        if self.again or self.next < min(BATCHES, self.decided[0] + SIZE):
            super().send()
            self._tell_connection()

    def reconnect(self, gateway: Gateway, *, noticed: bool) -> None:
        super().reconnect(gateway, noticed=noticed)
        self._tell_connection()

    def hear(self) -> None:
        super().hear()
        is_written = self.idle and self.next == self.decided[0] + SIZE
        if is_written and (self.ending is None or self.ending.done()):
            self.ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        """The coordinator sends the marker until it is written: perhaps more than once."""
        kind = MarkerType.COMMIT if _commits(self.producer_id, self.decided[0]) else MarkerType.ABORT
        marker = TransactionMarker(kind, self.producer_id, 0, 0)
        while True:
            try:
                log = await self.region.gateway.open()
                await log.prepare_marker()
                await log.transactional_writes.append_marker(marker, 0, MarkerForm())
                break
            except (KafkaError, PulsarError, TimeoutError):
                await asyncio.sleep(RETRY_S)
        self.decided[0] += SIZE

    def move(self, region: Region, *, noticed: bool) -> None:
        """Between two transactions. The other cluster's coordinator gives it another producer id."""
        if not self.idle or self.next != self.decided[0]:
            return
        self.producer_id += NEW_ID
        self.first = self.next
        self.producer_ids[self.producer_id] = self.first
        super().move(region, noticed=noticed)


class _Read(NamedTuple):
    """A batch of a client, as a committed read gets it, or leaves it out."""

    number: int
    is_aborted: bool


class TransactionalRegions(Regions):
    def __init__(self) -> None:
        self.regions: list[Region] = [TransactionalRegion(), TransactionalRegion()]
        self.transactional = [TransactionalClient(number, self.regions[number]) for number in range(2)]
        self.clients = [*self.transactional, Client(2, self.regions[0])]
        self.ends: list[tuple[Region, int, int, list[AbortedTransaction]]] = []
        """Of each cluster: the end and the last stable offset of its log, and what is aborted there."""

    def kill(self, region: Region, client: Client, number: int) -> None:
        """The coordinator loses its connection to the gateway, and sends unanswered markers to the next one."""
        super().kill(region, client, number)
        for each in self.transactional:
            if each.region is region and each.ending is not None:
                each.ending.cancel()

    async def finish(self) -> None:
        await super().finish()
        for region in self.regions:
            bounds = await read_bounds(cast(PulsarClient, region), cast(AdminClient, region), "topic")
            log = PartitionLog("topic", shared_on(region), bounds)
            async with asyncio.timeout(5):
                aborted = await log.transactions.read_aborted(0, log.end_offset)
            self.ends.append((region, log.end_offset, log.transactions.last_stable_offset, aborted))
            await log.close()
        await self._compare_with_open_logs()

    async def _compare_with_open_logs(self) -> None:
        """What a log has learned by receipts and copies is what another gateway reads from the beginning."""
        for region, end_offset, stable_offset, aborted in self.ends:
            log = region.gateway.log
            if log is None or log.closed:
                continue
            async with asyncio.timeout(5):
                await _refreshed(log)
                found = await log.transactions.read_aborted(0, log.end_offset)
            assert (log.end_offset, log.transactions.last_stable_offset) == (end_offset, stable_offset)
            assert _places(found) == _places(aborted)

    def check(self) -> None:
        idempotent = self.clients[-1:]
        everyone, self.clients = self.clients, idempotent
        super().check()
        self.clients = everyone
        for region, end_offset, stable_offset, aborted in self.ends:
            assert stable_offset == end_offset, "a transaction is open for ever"
            for client in self.transactional:
                self._check_client(client, [*_reads(region, client, aborted)])

    def _check_client(self, client: TransactionalClient, reads: list[_Read]) -> None:
        assert [read.number for read in reads] == [*range(BATCHES)], "once, and in order"
        for read in reads:
            producer_id = max(each for each, first in client.producer_ids.items() if first <= read.number)
            assert read.is_aborted != _commits(producer_id, read.number)

    async def end(self) -> None:
        for client in self.transactional:
            if client.ending is not None:
                client.ending.cancel()
        await super().end()


async def _refreshed(log: PartitionLog) -> None:
    """A reader that is silent is given up, and the next one is not."""
    while True:
        with suppress(TimeoutError):
            return await log.end.refresh()


def _commits(producer_id: int, number: int) -> bool:
    """Whether the transaction of the batch is committed."""
    return (number // SIZE + producer_id) % 2 == 0


def _places(aborted: list[AbortedTransaction]) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]


def _reads(region: Region, client: TransactionalClient, aborted: list[AbortedTransaction]) -> Iterator[_Read]:
    for _, index, data, metadata in region.entries:
        offset = index - metadata.num_messages_in_batch + 1
        for _, header in iter_headers(data):
            first = client.producer_ids.get(header.producer_id)
            if first is not None and not header.is_control:
                is_aborted = any(
                    each.producer_id == header.producer_id and each.first_offset <= offset < each.last_offset
                    for each in aborted
                )
                yield _Read(first + header.base_sequence // RECORDS, is_aborted)
            offset += header.last_offset_delta + 1
