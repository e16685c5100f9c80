"""Clients that misuse TLS: the memory that they pin stays small, and other connections are not affected."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.network.socket_state import sends_nothing
from gateway.observability import logs
from gateway.transport.tls import READ_BUFFER_BYTES, RECORD_BYTES, TlsConnection
from tests.unit.gateway.transport.test_tls import HOST, TIMEOUT_S, Echo, Lab

FLOOD_BYTES = 16 * 1024 * 1024
SMALL_BYTES = 2 * 1024 * 1024
"""What one client may pin: much less than it sends."""
POINTER_TO_SSL = 24
"""Where CPython's `_ssl._SSLSocket` has it: behind its header and one pointer."""
UPDATE_REQUESTED = 1
MANY = 30


class Pending(Echo):
    """Has a request to answer, like one that waits for records."""

    def eof_received(self) -> bool:
        self.ended = True
        return True


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    await found.start()
    try:
        yield found
    finally:
        assert found.server is not None
        found.server.close()
        for each in found.carried:
            each.tls.abort()
        while clients:
            clients.pop().socket.close()
        await asyncio.sleep(0)


clients: list[HandMadeClient] = []


class HandMadeClient:
    """TLS whose records and bytes the test sends itself."""

    def __init__(
        self,
        lab: Lab,
        maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        *,
        receive_bytes: int = 65_536,
        name: str = HOST,
    ) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((HOST, lab.port))
        self.socket.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = lab.client_context()
        context.maximum_version = maximum
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self._loop = asyncio.get_running_loop()
        clients.append(self)

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self._loop.sock_sendall(self.socket, data), TIMEOUT_S)

    async def flush(self) -> None:
        await self.send(self.outgoing.read())

    async def shake_hands(self) -> None:
        await self.shake_hands_to_the_last_flight()
        await self.flush()

    async def shake_hands_to_the_last_flight(self) -> None:
        """The client's last messages are still to be sent."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self.flush()
                self.incoming.write(await self._loop.sock_recv(self.socket, 65_536))

    async def echoed(self, data: bytes) -> bytes:
        self.tls.write(data)
        await self.flush()
        while True:
            try:
                return self.tls.read(len(data))
            except ssl.SSLWantReadError:
                self.incoming.write(await self._loop.sock_recv(self.socket, 65_536))

    async def ask_for_new_keys(self, most: int, enough: asyncio.Event, data: bytes = b"") -> None:
        """Repeatedly; the server must answer each with new keys of its own. Some come with data."""
        pointer = ctypes.c_void_p.from_address(id(self.tls._sslobj) + POINTER_TO_SSL)  # type: ignore[attr-defined]
        update = ctypes.CDLL("libssl.so.3").SSL_key_update
        update.argtypes = [ctypes.c_void_p, ctypes.c_int]
        for asked in range(most):
            assert update(pointer, UPDATE_REQUESTED) == 1
            self.tls.write(b"")
            if asked % 500 == 499 and data:
                self.tls.write(data)
            if asked % 1_000 == 999:
                await self.flush()
            if enough.is_set():
                return

    async def take_all(self) -> None:
        while True:
            self.incoming.write(await self._loop.sock_recv(self.socket, 65_536))


async def test_what_comes_behind_the_end_of_tls_is_not_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.gateway.transport.test_tls.Echo", Pending)
    client = HandMadeClient(lab)
    await client.shake_hands()
    await client.echoed(b"x")
    (carried,) = lab.carried
    with pytest.raises(ssl.SSLError):
        client.tls.unwrap()
    await client.flush()
    for _ in range(FLOOD_BYTES // SMALL_BYTES):
        await client.send(bytes(SMALL_BYTES))
    await asyncio.sleep(0.1)
    assert carried.ended
    assert carried.tls._incoming.pending < SMALL_BYTES


async def test_host_names_that_are_not_ascii_fill_no_log(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python cannot raise these errors. By default it writes a traceback of each to standard error."""
    monkeypatch.setattr(sys, "unraisablehook", logs.log_ignored)
    monkeypatch.setattr(logs, "_ignored", logs.SparseLog(structlog.get_logger(), lambda: 0.0))
    with capture_logs() as lines:
        for _ in range(MANY):
            client = HandMadeClient(lab, name="host.test")
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            await client.send(client.outgoing.read().replace(b"host.test", b"h\xffst.test"))
            while await asyncio.wait_for(client._loop.sock_recv(client.socket, 100), TIMEOUT_S):
                pass
    assert lab.closed("TLS handshake failed") == MANY
    assert [line["event"] for line in lines].count("exception ignored") == 1
    assert capfd.readouterr().err == ""


class Busy(Echo):
    """Works on its first request, and does not read in the meantime."""

    def __init__(self, tls: TlsConnection, times: int) -> None:
        super().__init__(tls, times)
        self.buffer = memoryview(bytearray(20_000))

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self.buffer[:nbytes])
        self.tls.pause_reading()


async def test_what_nobody_reads_stays_in_the_socket(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of TLS does not count as memory of requests."""
    monkeypatch.setattr("tests.unit.gateway.transport.test_tls.Echo", Busy)
    lab._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
    client = HandMadeClient(lab)
    await client.shake_hands_to_the_last_flight()
    client.tls.write(bytes(240_000))
    await client.flush()
    while not lab.carried or not lab.carried[0].received:
        await asyncio.sleep(0.01)
    (carried,) = lab.carried
    assert carried.tls._incoming.pending <= RECORD_BYTES
    monkeypatch.setattr(carried.tls, "pause_reading", lambda: None)
    carried.tls.resume_reading()
    async with asyncio.timeout(TIMEOUT_S):
        while len(carried.received) < 240_000:
            await asyncio.sleep(0.01)


async def test_new_keys_are_not_answered_without_end(lab: Lab) -> None:
    """Each needs an answer, and the client does not read it."""
    client = HandMadeClient(lab, receive_bytes=4_096)
    await client.shake_hands()
    await client.echoed(b"x")
    (carried,) = lab.carried
    carried.tls.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    flooding = asyncio.create_task(client.ask_for_new_keys(100_000, carried.paused, b"x"))
    await asyncio.wait_for(carried.paused.wait(), TIMEOUT_S)
    assert not cast(asyncio.Transport, carried.tls._raw).is_reading()
    taking = asyncio.create_task(client.take_all())
    await asyncio.wait_for(flooding, TIMEOUT_S)
    while carried.writing_paused:
        await asyncio.sleep(0.01)
    assert cast(asyncio.Transport, carried.tls._raw).is_reading()
    taking.cancel()
    assert set(await asyncio.wait_for(client.echoed(b"y"), TIMEOUT_S)) <= set(b"xy")


async def test_new_keys_without_data_end_the_connection(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    client = HandMadeClient(lab)
    await client.shake_hands()
    await client.echoed(b"x")
    (carried,) = lab.carried
    taken, take_next = 0, carried.tls._take_next

    def counting() -> bool:
        nonlocal taken
        taken += 1
        return take_next()

    monkeypatch.setattr(carried.tls, "_take_next", counting)
    with suppress(ConnectionError):
        await client.ask_for_new_keys(20_000, carried.lost)
    await asyncio.wait_for(carried.lost.wait(), TIMEOUT_S)
    assert lab.closed("TLS without data") == 1
    assert taken * RECORD_BYTES < 30 * 20_000, "most keys were not made"


async def test_records_of_clients_without_login_take_turns(lab: Lab) -> None:
    client = HandMadeClient(lab)
    await client.shake_hands()
    await client.echoed(b"x")
    (carried,) = lab.carried
    carried.has_to_log_in = True
    waiting: list[Callable[[], None]] = []
    cast(Any, carried.tls._watcher).take_turn = waiting.append
    client.tls.write(b"y")
    await client.flush()
    async with asyncio.timeout(TIMEOUT_S):
        while not waiting:
            await asyncio.sleep(0.01)
    raw = cast(asyncio.Transport, carried.tls._raw)
    assert carried.received == b"x" and not raw.is_reading()
    waiting.pop()()
    assert carried.received == b"xy" and raw.is_reading()


async def test_decryption_that_takes_long_goes_on_in_later_turns(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.transport.tls.STEP_S", 0.0)
    client = HandMadeClient(lab)
    await client.shake_hands()
    sent = bytes(range(256)) * 2_000
    client.tls.write(sent)
    taking = asyncio.create_task(client.take_all())
    await client.flush()
    async with asyncio.timeout(TIMEOUT_S):
        while not lab.carried or len(lab.carried[0].received) < len(sent):
            await asyncio.sleep(0.01)
    taking.cancel()
    assert lab.carried[0].received == sent


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_record_that_is_broken_behind_a_good_one(lab: Lab, version: ssl.TLSVersion) -> None:
    """Both are read together: the response to the first can no longer be encrypted."""
    unexpected: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    client = HandMadeClient(lab, version)
    await client.shake_hands()
    await client.echoed(b"x")
    (carried,) = lab.carried
    client.tls.write(b"good")
    good = client.outgoing.read()
    client.tls.write(b"bad")
    bad = bytearray(client.outgoing.read())
    bad[-1] ^= 1
    await client.send(good + bad)
    await asyncio.wait_for(carried.lost.wait(), TIMEOUT_S)
    assert carried.received == b"xgood"
    assert unexpected == []
    assert lab.closed("TLS failed") == 1
    client.socket.close()


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_half_a_record_is_nothing_that_the_connection_could_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion, is_whole: bool
) -> None:
    """The client may have gone: while memory is short, its connection is not read, and nothing else tells it."""
    monkeypatch.setattr("tests.unit.gateway.transport.test_tls.Echo", Busy)
    lab._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
    client = HandMadeClient(lab, version)
    await client.shake_hands()
    while not lab.carried:
        await asyncio.sleep(0.01)
    (carried,) = lab.carried
    carried.buffer = memoryview(bytearray(10_000))
    client.tls.write(bytes(10_000))
    first = client.outgoing.read()
    client.tls.write(b"the rest")
    record = client.outgoing.read()
    rest = b"" if is_whole else record[len(record) // 2 :]
    await client.send(first + record.removesuffix(rest))
    async with asyncio.timeout(TIMEOUT_S):
        while not carried.received:
            await asyncio.sleep(0.01)
    for _ in range(2):
        assert sends_nothing(carried.tls) is not is_whole
    await client.send(rest)
    async with asyncio.timeout(TIMEOUT_S):
        while sends_nothing(carried.tls):
            await asyncio.sleep(0.01)
    carried.tls.resume_reading()
    async with asyncio.timeout(TIMEOUT_S):
        while len(carried.received) < 10_008:
            await asyncio.sleep(0.01)
    assert carried.received == bytes(10_000) + b"the rest"
