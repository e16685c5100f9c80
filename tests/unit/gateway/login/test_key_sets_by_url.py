"""Keys of tokens from a server that speaks TLS, and what such a server may do wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import jwt
import pytest
import structlog
from aiohttp import connector, web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import rsa

from deploy.local.certificates import Authority
from gateway.config.security import TokensSection
from gateway.login import key_sets
from gateway.login.key_sets import ASK_AGAIN_S, MAX_SET_BYTES, token_keys
from gateway.login.token_types import TokenKeys
from gateway.login.tokens import TokenVerifier
from protocol.sasl.failure import LoginFailed
from tests.unit.gateway.login.test_key_sets import row

KEYS = {name: rsa.generate_private_key(65_537, 2_048) for name in ("first", "second")}
ENDLESS = bytes(64 * 1024)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def token(name: str) -> str:
    return jwt.encode({"sub": name}, KEYS[name], algorithm="RS256", headers={"kid": name})


class Provider:
    """An identity provider. `answer` is what it does."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.served = ["first"]
        self.answer: Answer = self.good
        self.requests = 0
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.show(authority, "127.0.0.1")
        app = web.Application()
        app.router.add_get("/keys", self._respond)
        app.router.add_get("/good", self.good)
        self.server = TestServer(app)

    def show(self, authority: Authority, host: str) -> None:
        """Show new clients another certificate."""
        issued = authority.issue("provider", hosts=[host])
        self.tls.load_cert_chain(issued.certificate, issued.key)

    @property
    def settings(self) -> TokensSection:
        return TokensSection(jwks_url=f"https://127.0.0.1:{self.server.port}/keys")

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)

    async def good(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.key_set())

    def key_set(self) -> bytes:
        return json.dumps({"keys": [row(KEYS[name], name) for name in self.served]}).encode()

    async def absent(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, body=self.key_set())

    async def elsewhere(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/good")

    async def not_keys(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>Please log in</html>")

    async def huge(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, ENDLESS, 0.0)

    async def slow(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, b" ", 0.01)

    async def silent(self, request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def cut(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100000"})
        await response.prepare(request)
        await response.write(self.key_set())
        assert request.transport is not None
        request.transport.abort()
        return response

    async def packed(self, request: web.Request) -> web.StreamResponse:
        """Much more than it seems to be."""
        data = self.key_set() + b" " * (64 * MAX_SET_BYTES)
        return web.Response(body=gzip.compress(data), headers={"Content-Encoding": "gzip"})

    async def _stream(self, request: web.Request, part: bytes, pause_s: float) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(part)
            await asyncio.sleep(pause_s)


@pytest.fixture
async def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Provider]:
    found = Provider(Authority(tmp_path / "own"))
    # As with SSL_CERT_FILE in the environment of a process.
    trusting = ssl.create_default_context(cafile=str(found.authority.certificate))
    monkeypatch.setattr(connector, "_SSL_CONTEXT_VERIFIED", trusting)
    await found.server.start_server(ssl=found.tls, shutdown_timeout=0.1)
    yield found
    await found.server.close()


@pytest.fixture
async def keys(provider: Provider) -> AsyncIterator[TokenKeys]:
    found = await token_keys(provider.settings)
    yield found
    await found.close()


async def test_a_good_key_set(provider: Provider, keys: TokenKeys) -> None:
    verifier = TokenVerifier(provider.settings, keys)
    assert (await verifier.verify(token("first"))).role == "first"
    assert provider.requests == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("absent", "status 404"), ("elsewhere", "status 302"), ("not_keys", "not a JSON Web Key Set"),
        ("huge", f"more than {MAX_SET_BYTES}"), ("packed", f"more than {MAX_SET_BYTES}"),
        ("slow", "no answer in time"), ("silent", "no answer in time"), ("cut", "payload"),
    ],
)  # fmt: skip
async def test_the_old_keys_stay(
    provider: Provider, keys: TokenKeys, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    """Whatever the server does, a read of its keys ends."""
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 0.0)
    if reason == "no answer in time":
        monkeypatch.setattr(key_sets, "FETCH_TIMEOUT_S", 0.3)
    provider.answer = getattr(provider, kind)
    provider.served = ["second"]
    assert reason in await refused(keys)
    provider.answer = provider.good
    assert await keys.find("second") is not None


async def refused(keys: TokenKeys) -> str:
    """Ask for a key that is not known yet, and return why it could not be read."""
    with structlog.testing.capture_logs() as lines:
        async with asyncio.timeout(20):
            assert await keys.find("second") is None
    assert await keys.find("first") is not None
    [line] = lines
    assert line["event"] == "cannot read token keys" and line["log_level"] == "warning"
    return str(line["error"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("of a stranger", "local issuer"), ("of another host", "IP address mismatch"), ("away", "Cannot connect")],
)
async def test_keys_come_from_the_server_of_that_name_only(
    provider: Provider,
    keys: TokenKeys,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    reason: str,
) -> None:
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 0.0)
    provider.served = ["second"]
    if kind == "of a stranger":
        provider.show(Authority(tmp_path / "stranger"), "127.0.0.1")
    elif kind == "of another host":
        provider.show(provider.authority, "identity.example")
    else:
        await provider.server.close()
    assert reason in await refused(keys)
    assert provider.requests == 1


async def test_a_new_key_is_found_but_the_server_is_asked_seldom(
    provider: Provider, keys: TokenKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = TokenVerifier(provider.settings, keys)
    now_s = time.monotonic()
    monkeypatch.setattr(key_sets, "time", SimpleNamespace(monotonic=lambda: now_s))
    provider.served = ["second"]
    for _ in range(20):
        with pytest.raises(LoginFailed, match="unknown key"):
            await verifier.verify(token("second"))
    assert provider.requests == 1
    now_s += ASK_AGAIN_S
    found = await asyncio.gather(*(verifier.verify(token("second")) for _ in range(20)))
    assert {each.role for each in found} == {"second"} and provider.requests == 2
    with pytest.raises(LoginFailed, match="unknown key"):
        await verifier.verify(token("first"))
    assert provider.requests == 2


async def test_a_server_that_is_away_at_the_start(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway starts without keys, and asks for them later."""
    provider.answer = provider.absent
    keys = await token_keys(provider.settings)
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 0.0)
    assert await keys.find("first") is None
    provider.answer = provider.good
    assert await keys.find("first") is not None
    await keys.close()


async def test_keys_are_read_again_at_intervals(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "REFRESH_S", 0.01)
    keys = await token_keys(provider.settings)
    provider.served = ["second"]
    async with asyncio.timeout(20):
        while await keys.find("first") is not None:
            await asyncio.sleep(0.01)
    await keys.close()
