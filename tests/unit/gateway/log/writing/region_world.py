"""A model of idempotent producers that move between two clusters, which replicate to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from gateway.pulsar.producer import SendListener
from protocol.kafka.batch import iter_headers
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic
from tests.unit.gateway.log.writing.idempotent_broker import RECORDS, Broker, Gateway
from tests.unit.gateway.log.writing.idempotent_world import BATCHES, MAX_IN_FLIGHT, ROUNDS, Producer

REPLICATOR = "pulsar.repl.other"


class Region(Broker):
    """The broker of a cluster, and its only gateway."""

    gateway_class: type[Gateway] = Gateway

    def __init__(self) -> None:
        super().__init__()
        self.cursors = [REPLICATOR]
        self.gateway = self.gateway_class(self)
        self.copied = 0
        """The number of entries that are in the other cluster, or came from there."""
        self.dead: set[SendListener] = set()
        self.connections: list[asyncio.Task[None]] = []

    def copy(self, other: Region, count: int) -> None:
        for _, _, data, metadata in self.entries[self.copied :][:count]:
            self.copied += 1
            if not metadata.HasField("replicated_from") and not metadata.HasField("marker_type"):
                FakeTopic.write(other, data, metadata.num_messages_in_batch, REPLICATOR, self.copied)
                copied = other.entries[-1][3]
                copied.ClearField("properties")
                copied.properties.extend(metadata.properties)
                copied.replicated_from = "this"

    def write_snapshot(self) -> None:
        FakeTopic.write(self, b"", 1, "", 0, native=True)
        self.entries[-1][3].marker_type = 10

    async def open_producer(self, topic: str, listener: SendListener, **options: Any) -> FakeProducer:
        if listener in self.dead:
            await asyncio.Event().wait()
        return await super().open_producer(topic, listener, **options)

    def silence_reader(self) -> None:
        """The broker sends nothing more to the log's reader, and does not say so."""
        log = self.gateway.log
        for reader in self.readers:
            if log is not None and reader.listener is log._follower:
                reader.permits = -1_000_000

    def lose_writer(self, received: int) -> None:
        for producer in self.gateway.producers:
            self.receive(producer, received)
            producer.lose()

    def kill_gateway(self) -> None:
        if self.gateway.log is not None:
            self.dead.add(self.gateway.log.writer._appender)
        self.gateway.kill()
        for task in self.connections:
            task.cancel()
        self.connections.clear()

    def batches_of(self, producer_id: int) -> Iterator[tuple[int, int]]:
        """The number and the offset of each."""
        for _, index, data, metadata in self.entries:
            offset = index - metadata.num_messages_in_batch + 1
            for _, header in iter_headers(data):
                if header.producer_id == producer_id:
                    yield header.base_sequence // RECORDS, offset
                offset += header.last_offset_delta + 1


class Client(Producer):
    """Remembers where each batch was acknowledged."""

    def __init__(self, producer_id: int, region: Region) -> None:
        super().__init__(producer_id, region.gateway)
        self.region = region
        self.places: dict[int, tuple[Region, int]] = {}
        self.left_batches = False
        """It moved while batches were unanswered: they may be written in both clusters."""

    def send(self) -> None:
        super().send()
        self.region.connections.append(self.connection.task)

    def hear(self) -> None:
        known = {*self.offsets}
        super().hear()
        self.places |= {number: (self.region, self.offsets[number]) for number in {*self.offsets} - known}

    def move(self, region: Region, *, noticed: bool) -> None:
        self.left_batches = self.left_batches or not self.idle
        self.region = region
        self.reconnect(region.gateway, noticed=noticed)


class Regions:
    """Two clusters, and three clients of either."""

    def __init__(self) -> None:
        self.regions = [Region(), Region()]
        self.clients = [Client(number, self.regions[number % 2]) for number in range(3)]

    def run(self, action: str, number: int) -> None:
        getattr(self, action)(self.regions[number % 2], self.clients[number % 3], number)

    def send(self, region: Region, client: Client, number: int) -> None:
        for _ in range(1 + number % MAX_IN_FLIGHT):
            client.send()

    def receive(self, region: Region, client: Client, number: int) -> None:
        for producer in region.gateway.producers:
            region.receive(producer, 1 + number % 3)

    def write(self, region: Region, client: Client, number: int) -> None:
        region.write(1 + number // 2)

    def confirm(self, region: Region, client: Client, number: int) -> None:
        region.confirm(1 + number // 2)

    def copy(self, region: Region, client: Client, number: int) -> None:
        region.copy(self._other(region), 1 + number // 2)

    def write_native(self, region: Region, client: Client, number: int) -> None:
        region.write_native()

    def write_snapshot(self, region: Region, client: Client, number: int) -> None:
        region.write_snapshot()

    def lose_writer(self, region: Region, client: Client, number: int) -> None:
        region.lose_writer(number % 3)

    def silence_reader(self, region: Region, client: Client, number: int) -> None:
        region.silence_reader()

    def unload(self, region: Region, client: Client, number: int) -> None:
        region.unload()

    def fail(self, region: Region, client: Client, number: int) -> None:
        region.failures += 1

    def close(self, region: Region, client: Client, number: int) -> None:
        if region.gateway.log is not None:
            region.gateway.log.start_closing()

    def reconnect(self, region: Region, client: Client, number: int) -> None:
        client.reconnect(client.region.gateway, noticed=number % 2 == 0)

    def move(self, region: Region, client: Client, number: int) -> None:
        """All that was written was copied: otherwise the other cluster does not know what was acknowledged."""
        self._copy_all()
        client.move(self._other(client.region), noticed=number % 2 == 0)

    def kill(self, region: Region, client: Client, number: int) -> None:
        region.kill_gateway()
        for each in self.clients:
            if each.region is region:
                each.reconnect(region.gateway, noticed=True)

    def _other(self, region: Region) -> Region:
        return self.regions[region is self.regions[0]]

    def _copy_all(self) -> None:
        for region in self.regions:
            region.copy(self._other(region), len(region.entries))

    async def finish(self) -> None:
        """Without further faults, everything is written, and copied."""
        for region in self.regions:
            region.failures = 0
        for _ in range(ROUNDS):
            for client in self.clients:
                self.send(client.region, client, MAX_IN_FLIGHT - 1)
            await asyncio.sleep(0.001)
            self._write_all()
            await let_callbacks_run()
            for client in self.clients:
                client.hear()
            if all(client.done for client in self.clients):
                self._write_all()
                return self._copy_all()
        raise AssertionError(f"stuck: {[(each.acknowledged, each.again) for each in self.clients]}")

    def _write_all(self) -> None:
        for region in self.regions:
            for producer in region.gateway.producers:
                region.receive(producer, len(producer.sent))
            region.write_all()
            region.confirm(len(region.written))

    def check(self) -> None:
        for client in self.clients:
            for region in self.regions:
                found = [number for number, _ in region.batches_of(client.producer_id)]
                assert [*dict.fromkeys(found)] == [*range(BATCHES)]
                assert client.left_batches or len(found) == BATCHES
            for number, (region, offset) in client.places.items():
                assert (number, offset) in region.batches_of(client.producer_id)

    async def end(self) -> None:
        for region in self.regions:
            if region.gateway.log is not None:
                await region.gateway.log.close()
        for client in self.clients:
            client.connection.task.cancel()
        for task in (task for region in self.regions for task in region.connections):
            task.cancel()
