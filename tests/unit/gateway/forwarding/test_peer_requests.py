"""Requests of a gateway itself to another one: on one connection, each caller gets a response or an error."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.messages import Address, Member
from gateway.fleet.fleet import Fleet
from gateway.fleet.peers import PeerLostError
from gateway.forwarding.peer_requests import PeerRequests
from gateway.forwarding.peers import Peers
from protocol.kafka.codec import encode_response, parse_header
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.proxy.header import parse_proxy_header
from tests.unit.gateway.forwarding.test_peers import WAIT_S, FakePeer

VERSION = 1


class Scene:
    def __init__(self, peer: FakePeer, member: Member) -> None:
        self.peer, self.member = peer, member
        self.is_member = True
        fleet = SimpleNamespace(subscribe=lambda listener: None, is_member=lambda member: self.is_member)
        self.requests = PeerRequests(Peers(cast(Fleet, fleet), "default"), iter(["first", "second"]))

    def ask(self, timeout_s: float = WAIT_S) -> asyncio.Task[WriteTxnMarkersResponse]:
        asking = self.requests.ask(self.member, VERSION, WriteTxnMarkersRequest(), WriteTxnMarkersResponse, timeout_s)
        return asyncio.create_task(asking)

    async def next(self) -> tuple[int, str | None]:
        """The correlation id and the client id of the next request."""
        header = parse_header(memoryview(await self.peer.frames.get()), flexible=True)
        return header.correlation_id, header.client_id

    def answer(self, correlation_id: int, producer_id: int = 7) -> None:
        row = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=producer_id)
        response = WriteTxnMarkersResponse(markers=[row])
        buffers = encode_response(WriteTxnMarkersResponse, VERSION, correlation_id, response)
        self.peer.answer(b"".join(buffers)[4:])


@asynccontextmanager
async def scene(*, has_forwarding: bool = True) -> AsyncIterator[Scene]:
    peer = FakePeer(is_greeted=has_forwarding)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    member = Member(
        node_id=1, incarnation="i", instance="", lease_ms=1, started_ms=0,
        addresses={"default": address}, forwarding=address if has_forwarding else None,
    )  # fmt: skip
    opened = Scene(peer, member)
    try:
        async with asyncio.timeout(WAIT_S):
            yield opened
    finally:
        opened.requests.close()
        server.close()
        if peer.serving:
            await asyncio.wait(peer.serving, timeout=WAIT_S)


async def test_responses_reach_their_callers() -> None:
    async with scene() as world:
        first, second = world.ask(), world.ask()
        asked = [await world.next(), await world.next()]
        header = parse_proxy_header(world.peer.greeting)
        assert header is not None and header.source is not None
        assert (header.source.host, header.is_own) == ("127.0.0.1", True)
        assert [client_id for _, client_id in asked] == ["first", "first"]
        world.answer(asked[1][0], producer_id=2)
        assert (await second).markers[0].producer_id == 2
        world.answer(asked[0][0], producer_id=1)
        assert (await first).markers[0].producer_id == 1


async def test_a_former_member_gets_no_request() -> None:
    async with scene() as world:
        world.is_member = False
        with pytest.raises(PeerLostError):
            await world.ask()
        world.is_member = True
        asked = world.ask()
        number, client_id = await world.next()
        assert client_id == "first"
        world.answer(number)
        await asked


async def test_an_answer_that_is_late_ends_the_link() -> None:
    async with scene() as world:
        other = world.ask()
        await world.next()
        with pytest.raises(PeerLostError, match="no answer within"):
            await world.ask(timeout_s=0.05)
        with pytest.raises(PeerLostError):
            await other
        again = world.ask()
        await world.next()  # the late one
        correlation_id, client_id = await world.next()
        assert client_id == "second"
        world.answer(correlation_id)
        await again


async def test_a_lost_peer_fails_all_requests() -> None:
    async with scene() as world:
        asking = world.ask()
        await world.next()
        world.peer.close()
        with pytest.raises(PeerLostError, match="closed by the other side"):
            await asking


async def test_an_answer_that_cannot_be_read_ends_the_link() -> None:
    async with scene() as world:
        asking = world.ask()
        correlation_id, _ = await world.next()
        world.peer.answer(struct.pack(">i", correlation_id) + b"\x00\xff\xff\xff\xff\xff\xff")
        with pytest.raises(PeerLostError, match="cannot be read"):
            await asking


async def test_a_caller_that_leaves_keeps_the_connection_for_others() -> None:
    async with scene() as world:
        leaving, staying = world.ask(), world.ask()
        asked = [await world.next(), await world.next()]
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        for correlation_id, _ in asked:
            world.answer(correlation_id)
        await staying


async def test_without_a_listener_for_gateways_it_is_asked_where_clients_are() -> None:
    async with scene(has_forwarding=False) as world:
        asking = world.ask()
        correlation_id, _ = await world.next()
        world.answer(correlation_id)
        await asking
