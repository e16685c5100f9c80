"""A model of idempotent producers, their gateways, and the broker."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Collection, Iterator
from typing import cast

from gateway.errors import KafkaError, error_code
from gateway.log.partition_log import PartitionLog
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.pulsar.errors import ConnectionLostError, PulsarError, TopicNotFoundError
from protocol.kafka.batch import BatchHeader, iter_headers
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.writing.idempotent_broker import RECORDS, Broker, Gateway, batch_of

MAX_IN_FLIGHT = 5
BATCHES = 14
ROUNDS = 300
"""Much more than is needed to write everything without faults."""
RETRIED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Request:
    def __init__(self, number: int) -> None:
        self.number = number
        self.answer: tuple[int, ErrorCode] | None = None


class Leader:
    """For one client, or for all: leads when its predecessor has stopped."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.taken_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.taken_over.set_result(None)

    def change(self, gateway: Gateway) -> None:
        let_go = [self.taken_over]
        if self.gateway.log is not None:
            let_go.append(asyncio.ensure_future(self.gateway.log.close()))
        self.gateway = gateway
        self.taken_over = cast("asyncio.Future[None]", asyncio.gather(*let_go))


class Connection:
    """How a gateway handles the Produce requests of one connection: one after the other."""

    numbers = itertools.count()

    def __init__(self, gateway: Gateway, leader: Leader, producer_id: int) -> None:
        self.gateway = gateway
        self.leader = leader
        self.producer_id = producer_id
        self.number = next(self.numbers)
        self.refused = RefusedBatches()
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.outstanding: deque[Request] = deque()
        self.task = asyncio.create_task(self.serve())

    def send(self, number: int) -> None:
        self.outstanding.append(Request(number))
        self.requests.put_nowait(self.outstanding[-1])

    async def serve(self) -> None:
        while True:
            await self.produce(await self.requests.get())

    def batch(self, number: int) -> tuple[memoryview, BatchHeader]:
        return batch_of(self.producer_id, number)

    async def prepare(self, log: PartitionLog, header: BatchHeader) -> None:
        await log.prepare(header, self.number)

    async def produce(self, request: Request) -> None:
        data, header = self.batch(request.number)

        def done(base_offset: int, error: Exception | None) -> None:
            request.answer = base_offset, error_code(error) if error is not None else ErrorCode.NONE
            self.refused.refuse("t", 0, header, request.answer[1])

        try:
            await asyncio.shield(self.leader.taken_over)
            self._check_leads()
            log = await self.gateway.open()
            self._check_leads()
            if not log.ready_for(header, self.number):
                await self.prepare(log, header)
                self._check_leads()
            self.refused.check("t", 0, header, log.producers)
            log.append(data, header, self.number, done)
        except (KafkaError, PulsarError, TimeoutError) as error:
            done(-1, error)

    def _check_leads(self) -> None:
        if self.leader.gateway is not self.gateway or not self.gateway.has_lease:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Producer:
    """The model client."""

    retried: Collection[ErrorCode] = RETRIED
    connection_class: type[Connection] = Connection

    def __init__(self, producer_id: int, gateway: Gateway, leader_of_all: Leader | None = None) -> None:
        self.producer_id = producer_id
        self.leader_of_all = leader_of_all
        self.leader = leader_of_all or Leader(gateway)
        self.connection = self.connection_class(gateway, self.leader, producer_id)
        self.connections = {gateway: self.connection}
        self.sent_away = False
        self.next = 0
        self.again: list[int] = []
        self.acknowledged = -1
        """This batch and all before it are acknowledged."""
        self.offsets: dict[int, int] = {}

    @property
    def idle(self) -> bool:
        return self.acknowledged == self.next - 1 and not self.connection.outstanding

    @property
    def done(self) -> bool:
        return self.idle and self.next == BATCHES

    def send(self) -> None:
        if len(self.connection.outstanding) >= MAX_IN_FLIGHT:
            return
        if self.sent_away and not self.connection.outstanding:
            self.go_over()
        if self.again:
            self.connection.send(self.again.pop(0))
        elif self.next < BATCHES:
            self.connection.send(self.next)
            self.next += 1

    def hear(self) -> None:
        outstanding = self.connection.outstanding
        while outstanding and outstanding[0].answer is not None:
            request = outstanding.popleft()
            assert request.answer is not None
            base_offset, code = request.answer
            if code == ErrorCode.NONE:
                self.acknowledged = max(self.acknowledged, request.number)
                self.offsets[request.number] = base_offset
                self.again = [number for number in self.again if number > self.acknowledged]
            elif request.number > self.acknowledged:
                first = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and request.number == self.acknowledged + 1
                assert not first, f"batch {request.number} is said to be out of order, and is the next one"
                self.sent_away = self.sent_away or code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert code in self.retried or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                self.again = sorted([*self.again, request.number])

    def go_over(self) -> None:
        """Change to another leader; the connection to the previous one stays."""
        gateway, self.sent_away = self.leader.gateway, False
        if gateway not in self.connections:
            self.connections[gateway] = self.connection_class(gateway, self.leader, self.producer_id)
        self.connection = self.connections[gateway]

    def reconnect(self, gateway: Gateway, *, noticed: bool) -> None:
        """The old connection may have requests that its gateway continues with, until it notices."""
        unanswered = [request.number for request in self.connection.outstanding]
        self.again = sorted({*self.again, *(number for number in unanswered if number > self.acknowledged)})
        if noticed:
            self.connection.task.cancel()
        if self.leader_of_all is None:
            self.leader = Leader(gateway)
        gateway = self.leader.gateway
        self.connection = self.connection_class(gateway, self.leader, self.producer_id)
        self.connections = {gateway: self.connection}


class World:
    """Two gateways on one topic, two clients of the first and one of the second.

    Each client has a leader of its own, so both gateways may accept batches at the same time. This asks more of a log
    than the fleet does, where one gateway at a time leads for all clients (``one_leader``).
    """

    def __init__(self, *, one_leader: bool = False) -> None:
        self.broker = Broker()
        self.gateways = [Gateway(self.broker), Gateway(self.broker)]
        leader = Leader(self.gateways[0]) if one_leader else None
        of_each = [self.gateways[0 if one_leader else number // 2] for number in range(3)]
        self.clients = [Producer(number, gateway, leader) for number, gateway in enumerate(of_each)]

    def run(self, action: str, number: int) -> None:
        gateway, client = self.gateways[number % 2], self.clients[number % 3]
        getattr(self, action)(gateway, client, number)

    def send(self, gateway: Gateway, client: Producer, number: int) -> None:
        for _ in range(1 + number % MAX_IN_FLIGHT):
            client.send()

    def receive(self, gateway: Gateway, client: Producer, number: int) -> None:
        for producer in gateway.producers:
            self.broker.receive(producer, 1 + number % 3)

    def write(self, gateway: Gateway, client: Producer, number: int) -> None:
        self.broker.write(1 + number)

    def confirm(self, gateway: Gateway, client: Producer, number: int) -> None:
        self.broker.confirm(1 + number)

    def write_native(self, gateway: Gateway, client: Producer, number: int) -> None:
        self.broker.write_native()

    def lose_writer(self, gateway: Gateway, client: Producer, number: int) -> None:
        for producer in gateway.producers:
            self.broker.receive(producer, number % 3)
            producer.lose()

    def lose_reader(self, gateway: Gateway, client: Producer, number: int) -> None:
        error = ConnectionLostError("lost") if number % 3 else TopicNotFoundError("gone")
        for reader in self.broker.readers:
            if not reader.closed and gateway.log is not None and reader.listener is gateway.log._follower:
                reader.lose(error)

    def unload(self, gateway: Gateway, client: Producer, number: int) -> None:
        for each in self.broker.producers:
            if not each.closed:
                self.broker.receive(each, number % 3)
        self.broker.unload()

    def fail(self, gateway: Gateway, client: Producer, number: int) -> None:
        if number % 2:
            self.broker.failures += 1
        else:
            self.broker.open_failures.append(ConnectionLostError("not now"))

    def reconnect(self, gateway: Gateway, client: Producer, number: int) -> None:
        client.reconnect(client.connection.gateway, noticed=number % 2 == 0)

    def move(self, gateway: Gateway, client: Producer, number: int) -> None:
        """A client that does not wait for responses changes to another gateway."""
        if client.idle:
            client.reconnect(gateway, noticed=True)

    def lead(self, gateway: Gateway, client: Producer, number: int) -> None:
        client.leader.change(gateway)

    def kill(self, gateway: Gateway, client: Producer, number: int) -> None:
        gateway.kill()
        leader = client.leader_of_all
        if leader is not None and leader.gateway is gateway:
            leader.change(self.gateways[number // 2 % 2])
        for each in self.clients:
            if each.connection.gateway is gateway:
                each.reconnect(self.gateways[(number // 2 + each.producer_id) % 2], noticed=True)

    async def end(self) -> None:
        for gateway in self.gateways:
            if gateway.log is not None:
                await gateway.log.close()
        for client in self.clients:
            for connection in (client.connection, *client.connections.values()):
                connection.task.cancel()

    async def finish(self) -> None:
        """Without further faults, everything is written."""
        self.broker.failures, self.broker.open_failures = 0, []
        for _ in range(ROUNDS):
            for client in self.clients:
                self.send(self.gateways[0], client, MAX_IN_FLIGHT - 1)
            await let_callbacks_run()
            for gateway in self.gateways:
                self.receive(gateway, self.clients[0], 2)
            self.broker.write(100)
            self.broker.confirm(100)
            await let_callbacks_run()
            for client in self.clients:
                client.hear()
            if all(client.done for client in self.clients):
                return
        raise AssertionError(f"stuck: {[(each.acknowledged, each.again) for each in self.clients]}")

    def check(self) -> None:
        for client in self.clients:
            found = list(self._batches_of(client.producer_id))
            assert [number for number, _ in found] == list(range(BATCHES))
            offsets = dict(found)
            assert client.offsets.items() <= offsets.items()

    def _batches_of(self, producer_id: int) -> Iterator[tuple[int, int]]:
        for _, index, data, metadata in self.broker.entries:
            offset = index - metadata.num_messages_in_batch + 1
            for _, header in iter_headers(data):
                if header.producer_id == producer_id:
                    yield header.base_sequence // RECORDS, offset
                offset += RECORDS
