"""How parts of a gateway send requests to other gateways; `forwarding.peer_requests` implements it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from coordinator.fleet.messages import Member
from protocol.kafka.messages.message import Message

R = TypeVar("R", bound=Message)


class PeerLostError(Exception):
    """No answer arrived, or it is unreadable. The request may or may not have been handled."""


class Peers(Protocol):
    async def ask(self, member: Member, version: int, request: Message, response: type[R], timeout_s: float) -> R:
        """Send a request of this gateway's own. Raises PeerLostError: earlier requests to it are lost then, too."""
