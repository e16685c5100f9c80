"""TLS over real sockets: transferred data, the memory of a client that does not read, and refused clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from deploy.local.certificates import Authority
from gateway.config.limits import Limits
from gateway.config.listeners import LOOPBACK, ListenerSection, TlsSection
from gateway.login.certificate_names import CertificateNames
from gateway.network.arrivals import Arrivals
from gateway.network.connection import WRITE_HIGH_BYTES
from gateway.network.turns import SLICE_S, Turns
from gateway.observability.metrics import Metrics
from gateway.requests.context import ANONYMOUS, MAX_NAME_BYTES, Principal
from gateway.transport.carried import UNDECRYPTED_BYTES, Carried
from gateway.transport.certificates import Certificates, InvalidCertificate
from gateway.transport.proxy import AwaitedProxyHeader
from gateway.transport.tls import TlsConnection
from tests.unit.gateway.network.connection_harness import FakeTransport

HOST = "127.0.0.1"
PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n"
TIMEOUT_S = 20.0
CLIENTS = 10


class Echo(Carried):
    """The connection above TLS: sends everything back, repeated `times` times."""

    def __init__(self, tls: TlsConnection, times: int) -> None:
        self.tls, self.times = tls, times
        self.buffer = memoryview(bytearray(100_000))
        self.received = b""
        self.writing_paused = self.ended = False
        self.lost = asyncio.Event()
        self.paused = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert transport is self.tls
        self.tls.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self.buffer[:nbytes])
        self.received += data
        self.tls.writelines([data, b""] * self.times)

    def pause_writing(self) -> None:
        self.writing_paused = True
        self.paused.set()

    def resume_writing(self) -> None:
        self.writing_paused = False

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Lab:
    """A listener with TLS, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.metrics = Metrics()
        limits = Limits(max_unauthenticated_per_address=3)
        self.arrivals = Arrivals(limits, self.metrics, Turns(by_cluster=False))
        self.authority = Authority(folder)
        self.issued = self.authority.issue("gateway", hosts=[HOST, "gateway.test"])
        self.settings = TlsSection(
            certificate=self.issued.certificate, key=self.issued.key, authorities=self.authority.certificate
        )
        self.certificates = Certificates("tls", self.settings, "requested", self.metrics)
        self.carried: list[Echo] = []
        self.times = 1
        self.proxied = False
        self.timeout_s = TIMEOUT_S
        self._buffer = memoryview(bytearray(50_000))
        self.server: asyncio.Server | None = None

    def _accept(self) -> TlsConnection:
        header = AwaitedProxyHeader(LOOPBACK) if self.proxied else None
        return TlsConnection(
            self.certificates.current, self._buffer, self._carry, self.arrivals,
            proxy_header=header, timeout_s=self.timeout_s,
        )  # fmt: skip

    def _carry(self, tls: TlsConnection) -> Echo:
        self.carried.append(Echo(tls, self.times))
        return self.carried[-1]

    async def start(self) -> None:
        self.server = await asyncio.get_running_loop().create_server(self._accept, HOST, 0)

    @property
    def port(self) -> int:
        assert self.server is not None
        return int(self.server.sockets[0].getsockname()[1])

    def client_context(self, certificate: Any = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    async def connect(
        self, certificate: Any = None, name: str = HOST
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self.client_context(certificate)
        return await asyncio.open_connection(HOST, self.port, ssl=context, server_hostname=name)

    def closed(self, reason: str) -> float:
        return cast(float, self.metrics.connections_closed.labels(reason)._value.get())


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
        await asyncio.sleep(0)


async def test_a_reset_connection_is_not_reported_as_one_of_an_untrusted_proxy(lab: Lab) -> None:
    lab.proxied = True
    lab._accept().connection_made(FakeTransport(peer=None))
    assert lab.closed("not a trusted proxy") == 0 and lab.closed("reset before it was accepted") == 1


async def test_handshakes_take_turns(lab: Lab) -> None:
    """One step uses up the slice of all: a flood of new connections keeps nobody else waiting for long."""
    clock, steps = count(), []

    class Numbered(Turns):
        number = 0

        def _begin(self) -> None:
            self.number += 1
            super()._begin()

    class Noting(Arrivals):
        def take_turn(self, step: Callable[[], None]) -> None:
            def noted() -> None:
                steps.append(turns.number)
                step()

            super().take_turn(noted)

    turns = Numbered(by_cluster=False, now_s=lambda: next(clock) * 2 * SLICE_S)
    lab.arrivals = Noting(Limits(), lab.metrics, turns)
    clients = await asyncio.wait_for(asyncio.gather(*(lab.connect() for _ in range(CLIENTS))), TIMEOUT_S)
    for reader, writer in clients:
        writer.write(b"request")
        assert await asyncio.wait_for(reader.readexactly(7), TIMEOUT_S) == b"request"
    assert len(steps) >= 2 * CLIENTS and len(steps) == len(set(steps))
    for _, writer in clients:
        writer.close()


async def test_what_is_written_comes_back(lab: Lab) -> None:
    reader, writer = await lab.connect(name="gateway.test")
    data = bytes(range(256)) * 12_000
    for _ in range(2):
        writer.write(data)
        assert await asyncio.wait_for(reader.readexactly(len(data)), TIMEOUT_S) == data
    (echo,) = lab.carried
    assert echo.tls.server_name == "gateway.test" and echo.tls.certificate is None
    writer.close()
    await asyncio.wait_for(echo.lost.wait(), TIMEOUT_S)
    assert echo.ended


async def test_what_a_client_does_not_take_is_counted(lab: Lab) -> None:
    """asyncio's own TLS returns 0, and continues."""
    lab.times = 1
    reader, writer = await lab.connect()
    writer.write(b"x")
    await asyncio.wait_for(reader.readexactly(1), TIMEOUT_S)
    (echo,) = lab.carried
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    unread = 16 * 1024 * 1024
    echo.tls.write(bytes(unread))
    await asyncio.wait_for(echo.paused.wait(), TIMEOUT_S)
    assert echo.writing_paused
    assert echo.tls.get_write_buffer_size() > unread // 4
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    await asyncio.wait_for(reader.readexactly(unread), TIMEOUT_S)
    while echo.writing_paused:
        await asyncio.sleep(0.01)
    writer.close()


async def test_what_is_left_of_a_step_is_counted_until_it_is_decrypted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client would seem to have sent nothing."""
    reader, writer = await lab.connect()
    writer.write(b"a")
    await reader.readexactly(1)
    (echo,) = lab.carried
    assert not echo.tls.get_extra_info(UNDECRYPTED_BYTES)
    get_buffer = echo.get_buffer

    def paused(size: int) -> memoryview:
        echo.tls.pause_reading()
        return get_buffer(size)

    monkeypatch.setattr(echo, "get_buffer", paused)
    writer.write(b"bcd")
    async with asyncio.timeout(TIMEOUT_S):
        while not echo.tls.get_extra_info(UNDECRYPTED_BYTES):
            await asyncio.sleep(0)
    monkeypatch.undo()
    echo.tls.resume_reading()
    assert await asyncio.wait_for(reader.readexactly(3), TIMEOUT_S) == b"bcd"
    assert not echo.tls.get_extra_info(UNDECRYPTED_BYTES)
    writer.close()


async def test_reading_stops_and_goes_on(lab: Lab) -> None:
    reader, writer = await lab.connect()
    writer.write(b"a")
    await reader.readexactly(1)
    (echo,) = lab.carried
    echo.tls.pause_reading()
    data = bytes(1_000_000)
    writer.write(data)
    await asyncio.sleep(0.1)
    assert echo.received == b"a"
    echo.tls.resume_reading()
    assert await asyncio.wait_for(reader.readexactly(len(data)), TIMEOUT_S) == data
    writer.close()


def pumped(lab: Lab, connected: socket.socket, *, before: bytes = b"", piece: int = 1 << 30) -> bytes:
    """A hand-made client in a thread: with bytes before TLS in one segment with its first message, or in pieces."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = lab.client_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    read = b""
    sent = False
    to_send = before
    while not read:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            if not sent:
                sent = True
                tls.write(b"hello")
            read = tls.read(100)
        to_send += outgoing.read()
        while to_send:
            connected.sendall(to_send[:piece])
            to_send = to_send[piece:]
        if not read:
            data = connected.recv(65_536)
            assert data
            incoming.write(data)
    return read


@pytest.mark.parametrize("piece", [1, 5, 1 << 30])
async def test_a_proxy_header_comes_first(lab: Lab, piece: int) -> None:
    lab.proxied = True
    with socket.create_connection((HOST, lab.port), TIMEOUT_S) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert await asyncio.to_thread(pumped, lab, connected, before=PROXY_LINE, piece=piece) == b"hello"
        assert lab.carried[0].tls.get_extra_info("peername") == ("192.0.2.7", 51000)


async def closes(lab: Lab, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, lab.port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), TIMEOUT_S)
    writer.close()


async def test_what_is_no_tls(lab: Lab) -> None:
    await closes(lab, struct.pack(">ihhih", 12, 18, 0, 1, -1) + b"\0\0")
    assert lab.closed("TLS handshake failed") == 1
    lab.proxied = True
    await closes(lab, b"\x16\x03\x01\x02\x00\x01")
    assert lab.closed("no PROXY header") == 1
    assert lab.carried == [] and lab.arrivals._by_site == {}


async def test_a_handshake_has_little_time(lab: Lab) -> None:
    lab.timeout_s = 0.05
    await closes(lab, b"")
    assert lab.closed("no TLS handshake in time") == 1


async def test_few_handshakes_from_one_address(lab: Lab) -> None:
    waiting = [await asyncio.open_connection(HOST, lab.port) for _ in range(3)]
    await asyncio.sleep(0.05)
    await closes(lab, b"")
    assert lab.closed("too many connections without login") == 1
    for _, writer in waiting:
        writer.close()
    await asyncio.sleep(0.05)
    assert lab.arrivals._by_site == {}
    reader, writer = await lab.connect()
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    writer.close()


async def test_certificates_are_renewed(lab: Lab) -> None:
    """Open connections stay; an invalid file keeps the old certificate."""
    reader, writer = await lab.connect()
    old = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    lab.issued.certificate.write_text("no certificate")
    await lab.certificates.renew()
    assert lab.metrics.certificate_failures.labels("tls")._value.get() == 1
    _, second = await lab.connect()
    assert second.get_extra_info("ssl_object").getpeercert(binary_form=True) == old
    lab.authority.issue("gateway", hosts=[HOST])
    await lab.certificates.renew()
    _, third = await lab.connect()
    assert third.get_extra_info("ssl_object").getpeercert(binary_form=True) != old
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    for each in (writer, second, third):
        each.close()


async def test_files_that_cannot_be_used(lab: Lab, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other").issue("other")
    for settings in (
        lab.settings.model_copy(update={"key": other.key}),
        lab.settings.model_copy(update={"certificate": tmp_path / "missing.pem"}),
        lab.settings.model_copy(update={"authorities": lab.issued.key}),
    ):
        with pytest.raises(InvalidCertificate, match=r"\.(pem|key)"):
            Certificates("tls", settings, "required", lab.metrics)


async def test_names_in_certificates(lab: Lab) -> None:
    client = lab.authority.issue("alice", unit="eu")
    reader, writer = await lab.connect(client)
    writer.write(b"x")
    await reader.readexactly(1)
    certificate = lab.carried[0].tls.certificate
    tls = {"certificate": str(lab.issued.certificate), "key": str(lab.issued.key), "authorities": str(lab.issued.key)}

    def names(client_auth: str, rules: str = "DEFAULT", protocol: str = "SSL") -> CertificateNames:
        sasl = {"mechanisms": ["SCRAM-SHA-256"]} if protocol == "SASL_SSL" else {}
        fields = {"protocol": protocol, "tls": tls, "client_auth": client_auth, "principal_rules": rules, **sasl}
        return CertificateNames(ListenerSection.model_validate(fields))

    assert names("required").principal(certificate) == Principal(name="CN=alice,OU=eu")
    assert names("required", "RULE:^CN=(.*),OU=eu$/$1/U").principal(certificate) == Principal(name="ALICE")
    assert names("required", "RULE:^CN=bob$/x/").principal(certificate) is None
    assert names("required", f"RULE:^CN=alice.*$/{'x' * MAX_NAME_BYTES}/").principal(certificate) is not None
    assert names("required", f"RULE:^CN=alice.*$/{'x' * MAX_NAME_BYTES}x/").principal(certificate) is None
    for rules in ("RULE:^CN=alice.*$/ANONYMOUS/", "RULE:^CN=alice.*$/anonymous/U"):
        assert names("requested", rules).principal(certificate) is None, "the name of clients without a login"
    assert names("required").principal(None) is None
    assert names("requested").principal(None) == ANONYMOUS == names("none").principal(certificate)
    assert names("required", "RULE:^CN=bob$/x/", "SASL_SSL").principal(certificate) == ANONYMOUS
    assert names("required").principal_at_proxy("alice") == Principal(name="CN=alice")
    assert names("required").principal_at_proxy(None) is None
    writer.close()
