"""A fleet in one thread: a log in memory, gateways that read and write when the test says so, clocks of their own."""

from __future__ import annotations

from itertools import count

from coordinator.fleet.leadership import PartitionRole
from coordinator.fleet.membership import Identity, Membership
from coordinator.fleet.messages import Address, LogPosition, Message, decode_message, encode_message
from coordinator.fleet.placement import PartitionKey
from coordinator.fleet.times import FleetTimes

TIMES = FleetTimes(heartbeat_ms=500, lease_ms=2_000, dead_after_ms=2_500, cut_off_ms=20_000)
KEYS = [PartitionKey("t", number) for number in range(8)]
LEDGER_ID = 7
_incarnations = count()


class FakeLog:
    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def append(self, message: Message) -> None:
        self.entries.append(encode_message(message))

    def __getitem__(self, index: int) -> Message:
        return decode_message(self.entries[index])

    def __len__(self) -> int:
        return len(self.entries)


class Gateway:
    """What it sends stays in `outbox` until `deliver`. Its clock runs at `rate` times the world's clock."""

    def __init__(
        self, log: FakeLog, instance: str, now_ms: int, node_id: int | None, rate: float, transaction_version: int = 0
    ) -> None:
        self.log, self.instance, self.rate = log, instance, rate
        self.outbox: list[Message] = []
        self.paused = False
        identity = Identity(
            node_id, instance, {"": Address(host=instance, port=9092)}, 0, transaction_version=transaction_version
        )
        snapshot = log[len(log) - 1].snapshot if len(log) else None
        self.next_index = snapshot.position.entry_id + 1 if snapshot and snapshot.position else 0
        self.membership = Membership(identity, TIMES, lambda: f"i{next(_incarnations)}", self.clock(now_ms), snapshot)

    def clock(self, now_ms: int) -> int:
        return int(now_ms * self.rate)

    def tick(self, now_ms: int) -> None:
        self.outbox += self.membership.due(self.clock(now_ms))

    def deliver(self, most: int | None = None) -> None:
        sent, self.outbox = self.outbox[:most], self.outbox[len(self.outbox[:most]) :]
        for message in sent:
            self.log.append(message)

    def read(self, now_ms: int, most: int | None = None) -> None:
        end = len(self.log) if most is None else min(len(self.log), self.next_index + most)
        for index in range(self.next_index, end):
            self.membership.read(LogPosition(LEDGER_ID, index), self.log[index], self.clock(now_ms))
        self.next_index = end

    def drain(self, now_ms: int) -> None:
        self.membership.drained(self.membership.roster.epoch, self.clock(now_ms))

    def step(self, now_ms: int) -> None:
        """What a healthy gateway does repeatedly."""
        self.tick(now_ms)
        self.deliver()
        self.read(now_ms)
        self.drain(now_ms)

    def leads(self, now_ms: int) -> set[PartitionKey]:
        now_ms = self.clock(now_ms)
        return {key for key in KEYS if self.membership.role(key, now_ms) is PartitionRole.LEADING}


class World:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.now_ms = 0
        self.gateways: list[Gateway] = []

    def start(
        self, instance: str, node_id: int | None = None, rate: float = 1, transaction_version: int = 0
    ) -> Gateway:
        gateway = Gateway(self.log, instance, self.now_ms, node_id, rate, transaction_version)
        self.gateways.append(gateway)
        return gateway

    def kill(self, gateway: Gateway) -> None:
        """Messages that it has sent may still arrive: the test delivers them, or not."""
        self.gateways.remove(gateway)

    def run(self, duration_ms: int, step_ms: int = 100) -> None:
        for _ in range(duration_ms // step_ms):
            self.now_ms += step_ms
            for gateway in self.gateways:
                if not gateway.paused:
                    gateway.step(self.now_ms)

    def leaders(self) -> dict[PartitionKey, list[Gateway]]:
        led = {gateway: gateway.leads(self.now_ms) for gateway in self.gateways}
        return {key: [gateway for gateway in self.gateways if key in led[gateway]] for key in KEYS}

    def check_one_leader_each(self) -> None:
        for key, leaders in self.leaders().items():
            assert len(leaders) == 1, f"{key}: {[gateway.instance for gateway in leaders]}"
