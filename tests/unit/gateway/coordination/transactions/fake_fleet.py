"""A fleet of three gateways, number 0 of which is this one, and the requests between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from coordinator.fleet.leadership import LeadershipState, PartitionRole
from coordinator.fleet.messages import Address, Member
from coordinator.fleet.placement import PartitionKey
from gateway.fleet.peers import PeerLostError, R
from protocol.kafka.messages.message import Message

WAIT_S = 10


def member(node_id: int) -> Member:
    return Member(
        node_id=node_id, incarnation=f"{node_id}", instance="", addresses={}, lease_ms=1, started_ms=0
    )  # fmt: skip


class FakeFleet:
    """A partition's number chooses its leader; partitions below 0 have none."""

    node_id = 0
    cluster_id = "c"
    incarnation = ""
    epoch = 1
    address = Address(host="h", port=1)
    state = LeadershipState.LEADING
    transaction_version = 2

    def __init__(self) -> None:
        self.members: Sequence[Member] = [member(number) for number in range(3)]

    def key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey(topic, partition)

    def leader(self, topic: str, partition: int) -> Member | None:
        return self.members[partition % 3] if partition >= 0 else None

    def leads(self, topic: str, partition: int) -> bool:
        return self.leader(topic, partition) is self.members[0]

    def role(self, topic: str, partition: int) -> PartitionRole:
        return PartitionRole.LEADING if self.leads(topic, partition) else PartitionRole.ELSEWHERE


@dataclass
class Asked:
    """A request in flight."""

    member: Member
    version: int
    request: Message
    answer: asyncio.Future[Message] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def lose(self) -> None:
        self.answer.set_exception(PeerLostError("lost"))


class FakePeers:
    """Keeps requests until the test answers."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()

    async def ask(self, member: Member, version: int, request: Message, response: type[R], timeout_s: float) -> R:
        asked = Asked(member, version, request)
        self.asked.put_nowait(asked)
        return cast(R, await asked.answer)

    async def next(self) -> Asked:
        async with asyncio.timeout(WAIT_S):
            return await self.asked.get()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)
