"""A client's connection to a leader: its identity, responses in any order, and their failure when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.messages import Address, Member
from gateway.fleet.fleet import Fleet
from gateway.forwarding.peers import READ_BUFFER_BYTES, PeerLink, Peers
from gateway.requests.context import MAX_NAME_BYTES
from protocol.kafka.buffers import Buffer
from protocol.proxy.header import parse_proxy_header

WAIT_S = 10


class FakePeer:
    """Keeps received frames, and answers when the test says so."""

    def __init__(self, *, is_greeted: bool = True) -> None:
        """`is_greeted` by a PROXY header."""
        self._is_greeted = is_greeted
        self.greeting = b""
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None
        self.serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.serving.add(cast(asyncio.Task[Any], asyncio.current_task()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if self._is_greeted:
                greeting = b""
                while parse_proxy_header(greeting) is None:
                    greeting += await reader.readexactly(1)
                self.greeting = greeting
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                self.frames.put_nowait(await reader.readexactly(length))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def answer(self, frame: bytes) -> None:
        """With the bytes of the request, its correlation id first."""
        assert self.writer is not None
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    def close(self) -> None:
        assert self.writer is not None
        self.writer.close()


def encode(text: bytes) -> Callable[[int], list[Buffer]]:
    def frame(correlation_id: int) -> list[Buffer]:
        return [struct.pack(">ii", 4 + len(text), correlation_id), text]

    return frame


def read_buffer() -> memoryview:
    return memoryview(bytearray(READ_BUFFER_BYTES))


def ask(link: PeerLink, text: bytes) -> asyncio.Future[bytearray | None]:
    answer: asyncio.Future[bytearray | None] = asyncio.get_running_loop().create_future()
    link.send(encode(text), answer.set_result)
    return answer


def member(port: int, incarnation: str = "i") -> Member:
    address = Address(host="127.0.0.1", port=port) if port else None
    return Member(
        node_id=1, incarnation=incarnation, instance="", addresses={}, forwarding=address, lease_ms=1, started_ms=0
    )


@asynccontextmanager
async def linked(
    on_lost: Callable[[PeerLink], None] = lambda link: None, principal: str | None = None
) -> AsyncIterator[tuple[PeerLink, FakePeer]]:
    peer = FakePeer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    leader = member(server.sockets[0].getsockname()[1])
    link = PeerLink(leader, "192.0.2.7:51000", read_buffer(), on_lost, principal=principal)
    try:
        async with asyncio.timeout(WAIT_S):
            yield link, peer
    finally:
        link.close()
        server.close()
        if peer.serving:
            await asyncio.wait(peer.serving, timeout=WAIT_S)


async def test_the_client_is_named_and_answers_find_their_requests() -> None:
    async with linked() as (link, peer):
        assert await link.ready()
        first, second = ask(link, b"first"), ask(link, b"second")
        frames = [await peer.frames.get(), await peer.frames.get()]
        assert peer.greeting == b"PROXY TCP4 192.0.2.7 0.0.0.0 51000 0\r\n"
        peer.answer(frames[1])
        assert bytes(await second or b"")[4:] == b"second"
        assert not first.done()
        peer.answer(frames[0])
        assert bytes(await first or b"")[4:] == b"first"


@pytest.mark.parametrize("principal", [None, "User:ä:b", f"User:{'ä' * (MAX_NAME_BYTES // 2)}"])
async def test_the_principal_is_named_if_rights_depend_on_it(principal: str | None) -> None:
    async with linked(principal=principal) as (link, peer):
        assert await link.ready()
        ask(link, b"first")
        await peer.frames.get()
        header = parse_proxy_header(peer.greeting)
        assert header is not None and (header.source, header.principal) == (("192.0.2.7", 51_000), principal)


async def test_a_lost_peer_answers_nothing() -> None:
    lost: list[PeerLink] = []
    async with linked(lost.append) as (link, peer):
        assert await link.ready()
        answer = ask(link, b"first")
        await peer.frames.get()
        peer.close()
        assert await answer is None
        assert lost == [link]
        assert not await link.ready()
        assert await ask(link, b"second") is None
        assert not link.send_unanswered(encode(b"third"))


async def test_a_lost_peer_that_did_not_read_is_not_waited_for() -> None:
    """Unsent data may fill the connection's buffer while it is closed."""
    async with linked() as (link, _):
        assert await link.ready()
        link.close()
        link.pause_writing()
        assert not await link.ready()


async def test_an_answer_to_nothing_ends_the_link() -> None:
    async with linked() as (link, peer):
        assert await link.ready()
        answer = ask(link, b"first")
        await peer.frames.get()
        peer.answer(struct.pack(">i", 99))
        assert await answer is None


async def test_large_answers_and_many_in_one_read() -> None:
    async with linked() as (link, peer):
        assert await link.ready()
        texts = [b"x" * size for size in (1, 40_000, 2 * READ_BUFFER_BYTES, 5)]
        answers = [ask(link, text) for text in texts]
        for _ in texts:
            peer.answer(await peer.frames.get())
        assert [bytes(await answer or b"")[4:] for answer in answers] == texts


async def test_a_peer_that_does_not_read_is_waited_for() -> None:
    async with linked() as (link, _):
        assert await link.ready()
        link.pause_writing()
        assert not link.writable
        waiting = asyncio.ensure_future(link.ready())
        await asyncio.sleep(0)
        assert not waiting.done()
        link.resume_writing()
        assert await waiting
        assert link.writable


async def test_connection_refused() -> None:
    for port in (1, 0):
        assert not await PeerLink(member(port), "unknown", read_buffer(), lambda link: None).ready()


async def test_closed_before_it_was_connected() -> None:
    async with linked() as (link, _):
        link.close()
        assert not await link.ready()


async def test_connections_to_former_members_are_closed() -> None:
    alive = {"old"}
    fleet = SimpleNamespace(subscribe=lambda listener: None, is_member=lambda member: member.incarnation in alive)
    peers = Peers(cast(Fleet, fleet))
    lost: list[Any] = []
    async with linked() as (other, _):
        links = [
            peers.open(other.member.model_copy(update={"incarnation": name}), "192.0.2.7:1", lost.append)
            for name in ("old", "gone")
        ]
        peers.leaders_changed()
        assert lost == [links[1]]
        assert await links[0].ready()
        links[0].close()


async def test_requests_fail_when_a_defect_prevents_the_connection() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def renew() -> None:
        raise ValueError("a certificate that nobody can read")

    address = Address(host="127.0.0.1", port=1)
    member = Member(
        node_id=1, incarnation="i", instance="", lease_ms=1, started_ms=0, addresses={}, forwarding=address
    )
    lost: list[PeerLink] = []
    link = PeerLink(member, None, read_buffer(), lost.append, security=cast(Any, SimpleNamespace(renew=renew)))
    async with asyncio.timeout(WAIT_S):
        assert not await link.ready()
    await asyncio.sleep(0)
    assert lost == [link]
    assert len(reported) == 1
