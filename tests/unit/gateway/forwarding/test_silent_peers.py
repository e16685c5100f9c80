"""A gateway whose machine acknowledges nothing is lost; one that has no room to read is not."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import uvloop

from gateway.forwarding import peers
from gateway.forwarding.peers import PeerLink
from gateway.forwarding.silence import is_silent, limit_unacknowledged_time
from tests.unit.gateway.forwarding.test_peers import WAIT_S, ask, member, read_buffer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what was acknowledged")

LARGE_BYTES = 24 * 1024 * 1024
"""More than the buffers of both sides hold."""
PAUSE_S = 2
"""Four times the silence after which a machine counts as lost here."""
SO_ATTACH_FILTER = 26


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SILENCE_MS", 500)
    monkeypatch.setattr(peers, "SILENCE_CHECK_S", 0.1)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[PeerLink, socket.socket]]:
    """A link, and the socket of the other side, which reads nothing by itself."""
    with socket.socket() as listening:
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        link = PeerLink(member(listening.getsockname()[1]), "192.0.2.7:51000", read_buffer(), lambda link: None)
        try:
            async with asyncio.timeout(WAIT_S):
                accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
                with accepted:
                    assert await link.ready()
                    yield link, accepted
        finally:
            link.close()


async def fill(link: PeerLink) -> asyncio.Future[bytearray | None]:
    """Send more than the other side has room for."""
    answer = ask(link, bytes(LARGE_BYTES))
    while link.writable:
        await asyncio.sleep(0.01)
    return answer


async def read_all(other: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(other, 1024 * 1024):
        pass


@contextmanager
def nothing_arrives_at(other: socket.socket) -> Iterator[None]:
    """As when its machine is gone: the system drops all packets for this socket, and acknowledges none."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # "return 0"
    other.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    yield


async def test_a_gateway_that_reads_late_is_waited_for() -> None:
    """Its memory for requests is full, or it waits for Pulsar."""
    async with connected() as (link, other):
        answer = await fill(link)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answer), PAUSE_S)
        assert not answer.done()
        reading = asyncio.ensure_future(read_all(other))
        await asyncio.get_running_loop().sock_sendall(other, struct.pack(">ii", 4, 1))
        assert await answer is not None
        link.close()
        await reading


async def test_a_gateway_that_does_not_receive_is_lost() -> None:
    async with connected() as (link, other):
        with nothing_arrives_at(other):
            assert await ask(link, b"sent") is None
        assert link.failure is not None


async def test_a_gateway_that_has_no_room_and_does_not_receive_is_lost() -> None:
    async with connected() as (link, other):
        answer = await fill(link)
        with nothing_arrives_at(other):
            assert await answer is None
        assert link.failure is not None


async def test_a_closed_link_is_not_kept_for_a_gateway_that_never_reads() -> None:
    async with connected() as (link, _):
        answer = await fill(link)
        link.close()
        assert await answer is None
        assert link._transport is not None
        while link._transport.get_write_buffer_size():
            await asyncio.sleep(0.05)


def test_the_loop_of_the_gateway_tells_it_too_also_of_a_link_that_is_lost() -> None:
    """Its sockets raise other errors when they are closed."""

    async def lose() -> None:
        async with connected() as (link, other):
            answers = [await fill(link), ask(link, b"more")]
            other.close()
            assert await asyncio.gather(*answers) == [None, None]
            assert not await link.ready()
            assert link._transport is not None
            connection = link._transport.get_extra_info("socket")
            while connection.fileno() >= 0:
                await asyncio.sleep(0)
            assert not is_silent(connection, 0)
            limit_unacknowledged_time(connection, 1)
        async with connected() as (link, other):
            with nothing_arrives_at(other):
                assert await ask(link, b"sent") is None

    uvloop.run(lose())
