"""Requests of this gateway itself to others: transaction markers, and questions about transactions.

There is one link to each gateway. If an answer does not come in time, the link is closed: its requests in flight are
lost, as if that gateway were lost, and a retry uses a new link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from coordinator.fleet.messages import Member
from gateway.fleet.peers import PeerLostError, R
from gateway.forwarding.peers import PeerLink, Peers
from protocol.kafka.codec import decode_response, encode_request
from protocol.kafka.messages.message import Message


class PeerRequests:
    def __init__(self, peers: Peers, client_ids: Iterator[str]) -> None:
        """The requests of each link carry the next one of `client_ids`."""
        self._peers = peers
        self._client_ids = client_ids
        self._links: dict[str, tuple[PeerLink, str]] = {}
        """By the gateway's incarnation: the link and its client id."""
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def ask(self, member: Member, version: int, request: Message, response: type[R], timeout_s: float) -> R:
        """Raises PeerLostError if no answer comes, or none that can be decoded."""
        if self._closed:
            raise PeerLostError("this gateway is stopping")
        if not self._peers.is_member(member):
            # Another member may be the same process: with two links to it, it would refuse the older one forever.
            raise PeerLostError("it is no member any more")
        link, client_id = self._link(member)
        answer: asyncio.Future[bytearray | None] = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                if await link.ready():
                    link.send(
                        lambda correlation_id: encode_request(
                            type(request), version, correlation_id, client_id, request
                        ),
                        lambda frame: None if answer.done() else answer.set_result(frame),
                    )
                    frame = await answer
                    if frame is not None:
                        return decode_response(response, version, memoryview(frame))
        except TimeoutError:
            link.close(f"no answer within {timeout_s:.0f} s")
        except ValueError as error:
            link.close(f"an answer cannot be read: {error}")
        raise PeerLostError(link.failure or "the link is closed")

    def _link(self, member: Member) -> tuple[PeerLink, str]:
        found = self._links.get(member.incarnation)
        if found is None:
            link = self._peers.open(member, None, self._lost)
            found = self._links[member.incarnation] = link, next(self._client_ids)
        return found

    def _lost(self, link: PeerLink) -> None:
        found = self._links.get(link.member.incarnation)
        if found is not None and found[0] is link:
            del self._links[link.member.incarnation]

    def close(self) -> None:
        self._closed = True
        for link, _ in tuple(self._links.values()):
            link.close()
