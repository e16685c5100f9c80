"""Whether the other gateways have evicted this one, asked of them directly.

A gateway without Pulsar cannot read of its own eviction. Others that have read of it advertise other leaders, in a
later epoch; others without Pulsar still advertise this gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.fleet.messages import Member
from gateway.fleet.peers import PeerLostError, Peers
from protocol.kafka.messages.topics import MetadataRequest, MetadataResponse

VERSION = 1
"""Of Metadata. Without topics, the response has only the brokers."""
ANSWER_S = 1.0
MAX_ASKED = 3
"""Of the others, at a time; the next ones are asked the next time. In a fleet without Pulsar, all gateways ask."""


class EvictionCheck:
    def __init__(self, peers: Peers) -> None:
        self.is_evicted: bool | None = False
        """None: no other gateway answers. It remains true until `reset`."""
        self._peers = peers
        self._asked = 0

    def reset(self) -> None:
        """This gateway has a lease."""
        self.is_evicted = False

    async def ask(self, node_id: int, others: Sequence[Member]) -> None:
        """Ask some others whether `node_id`, this gateway's, is a broker. Returns when each has answered, or is lost.
        """
        if self.is_evicted or not others:
            return
        first = self._asked % len(others)
        asked = [*others[first:], *others[:first]][:MAX_ASKED]
        self._asked += len(asked)
        answers = await asyncio.gather(*(self._is_broker_of(member, node_id) for member in asked))
        if False in answers:  # a gateway that has read of the eviction knows more than one that has not
            self.is_evicted = True
        else:
            self.is_evicted = False if True in answers else None

    async def _is_broker_of(self, member: Member, node_id: int) -> bool | None:
        """Whether the member's Metadata has this gateway among the brokers; None if the member does not answer."""
        try:
            answer = await self._peers.ask(member, VERSION, MetadataRequest(topics=[]), MetadataResponse, ANSWER_S)
        except PeerLostError:
            return None
        return any(broker.node_id == node_id for broker in answer.brokers)
