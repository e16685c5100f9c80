"""Connections between gateways with TLS: the certificates that both sides accept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.local.certificates import Authority, Issued
from gateway.config.gateway_config import ForwardingSection
from gateway.config.listeners import TlsSection
from gateway.forwarding import peers
from gateway.forwarding.peer_security import PeerNames, PeerSecurity
from gateway.forwarding.peers import PeerLink
from gateway.observability.metrics import Metrics
from tests.unit.gateway.forwarding.test_peers import WAIT_S, FakePeer, ask, member, read_buffer


class Scene:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.own = self.authority.issue("gateway-0")
        self.peer = FakePeer()
        self.links: list[PeerLink] = []
        self.server: asyncio.Server | None = None

    async def serve(self, issued: Issued, authority: Authority | None = None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        context.load_verify_locations((authority or self.authority).certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        self.server = await asyncio.start_server(self.peer.serve, "127.0.0.1", 0, ssl=context)

    def connect(self, *peer_names: str) -> PeerLink:
        assert self.server is not None
        tls = TlsSection(
            certificate=self.own.certificate, key=self.own.key, authorities=self.authority.certificate
        )
        security = PeerSecurity(ForwardingSection(tls=tls, peer_names=peer_names), Metrics())
        port = self.server.sockets[0].getsockname()[1]
        self.links.append(PeerLink(member(port), "192.0.2.7:5", read_buffer(), lambda link: None, security=security))
        return self.links[-1]

    def close(self) -> None:
        for link in self.links:
            link.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    # A busy machine needs longer for a handshake, which would fail otherwise.
    monkeypatch.setattr(peers, "CONNECT_S", WAIT_S)
    found = Scene(tmp_path)
    try:
        yield found
    finally:
        found.close()
        if found.peer.serving:
            await asyncio.wait(found.peer.serving, timeout=WAIT_S)


async def test_a_gateway_of_the_list(scene: Scene) -> None:
    await scene.serve(scene.authority.issue("gateway-1"))
    link = scene.connect("CN=gateway-0", "CN=gateway-1")
    async with asyncio.timeout(WAIT_S):
        assert await link.ready()
        answer = ask(link, b"x" * 100_000)
        scene.peer.answer(await scene.peer.frames.get())
        assert bytes(await answer or b"")[4:] == b"x" * 100_000
        assert scene.peer.greeting == b"PROXY TCP4 192.0.2.7 0.0.0.0 5 0\r\n"


@pytest.mark.parametrize("name", ["mallory", "gateway-10", "gateway"])
async def test_another_name(scene: Scene, name: str) -> None:
    await scene.serve(scene.authority.issue(name))
    async with asyncio.timeout(WAIT_S):
        link = scene.connect("CN=gateway-1")
        assert not await link.ready()
    assert link.failure == "client certificate not accepted"
    assert scene.peer.greeting == b""


async def test_another_authority(scene: Scene, tmp_path: Path) -> None:
    await scene.serve(Authority(tmp_path / "other").issue("gateway-1"))
    async with asyncio.timeout(WAIT_S):
        link = scene.connect("CN=gateway-1")
        assert not await link.ready()
    assert link.failure is not None and link.failure.startswith("TLS handshake failed")


async def test_a_peer_that_refuses_our_certificate(scene: Scene, tmp_path: Path) -> None:
    await scene.serve(scene.authority.issue("gateway-1"), Authority(tmp_path / "other"))
    async with asyncio.timeout(WAIT_S):
        link = scene.connect("CN=gateway-1")
        while link.failure is None:
            await asyncio.sleep(0.01)


async def test_a_peer_without_tls(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not answer the handshake: the connection fails after CONNECT_S."""
    monkeypatch.setattr(peers, "CONNECT_S", 0.2)
    scene.server = await asyncio.start_server(scene.peer.serve, "127.0.0.1", 0)
    async with asyncio.timeout(WAIT_S):
        assert not await scene.connect("CN=gateway-1").ready()


def test_names(tmp_path: Path) -> None:
    names = PeerNames(("CN=gateway",))
    assert not names.is_of_peer(None) and not names.is_of_peer(b"no certificate")
