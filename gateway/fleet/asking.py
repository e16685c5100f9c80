"""How parts of a gateway ask the other gateways; `forwarding.peer_requests` does it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from coordinator.fleet.messages import Member
from protocol.kafka.messages.message import Message

R = TypeVar("R", bound=Message)


class PeerLostError(Exception):
    """No answer came, or none that can be read. The request may have been handled, or not."""


class Peers(Protocol):
    async def ask(self, member: Member, version: int, request: Message, response: type[R], timeout_s: float) -> R:
        """A request of this gateway's own. Raises PeerLostError; what was sent before it is lost as well."""
