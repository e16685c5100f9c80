"""Keys that check tokens: files, key sets, and their renewal."""

from __future__ import annotations

import asyncio
import errno
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ValidationError

from gateway.config.security import TokensSection
from gateway.login import key_sets
from gateway.login.key_sets import KeySet, parse_key_set, token_keys
from gateway.login.token_types import InvalidKey
from gateway.login.tokens import TokenVerifier
from gateway.transport import watched_files
from protocol.sasl.failure import LoginFailed

SECRET = bytes(range(64))


def row(key: rsa.RSAPrivateKey, key_id: str | None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | more
    return found if key_id is None else found | {"kid": key_id}


async def test_a_key_set_is_asked_again_for_unknown_keys_but_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {name: rsa.generate_private_key(65_537, 2_048) for name in ("first", "second")}
    served, reads = ["first"], 0

    async def read() -> bytes:
        nonlocal reads
        reads += 1
        return json.dumps({"keys": [row(keys[name], name) for name in served]}).encode()

    key_set = KeySet("test", read)
    await key_set.read()
    verifier = TokenVerifier(TokensSection(jwks_url="https://unused"), key_set)

    def token(name: str) -> str:
        return jwt.encode({"sub": name}, keys[name], algorithm="RS256", headers={"kid": name})

    assert (await verifier.verify(token("first"))).role == "first"
    served.append("second")
    for _ in range(20):
        with pytest.raises(LoginFailed, match="unknown key"):
            await verifier.verify(token("second"))
    assert reads == 1
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 0.0)
    assert (await verifier.verify(token("second"))).role == "second" and reads == 2


async def test_keys_stay_while_they_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 0.0)
    key = rsa.generate_private_key(65_537, 2_048)
    answers: list[bytes | Exception] = [json.dumps({"keys": [row(key, None)]}).encode(), OSError("away"), b"{}"]

    async def read() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    key_set = KeySet("test", read)
    await key_set.read()
    for _ in range(2):
        assert await key_set.find("unknown") is None
        assert await key_set.find(None) is not None
    assert answers == []


async def test_a_key_that_was_removed_is_not_brought_back_by_an_older_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read for an unknown key is slow, and the set changes meanwhile."""
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", -1.0)
    stolen, fresh = (row(rsa.generate_private_key(65_537, 2_048), name) for name in ("stolen", "fresh"))
    served, is_slow, answer = [stolen], asyncio.Event(), asyncio.Event()

    async def read() -> bytes:
        data = json.dumps({"keys": served}).encode()
        if not is_slow.is_set():
            is_slow.set()
            await answer.wait()
        return data

    key_set = KeySet("test", read)
    asking = asyncio.create_task(key_set.find("unknown"))
    await is_slow.wait()
    served = [fresh]
    reading = asyncio.create_task(key_set.try_to_read())
    await asyncio.sleep(0)
    answer.set()
    await asyncio.gather(asking, reading)
    monkeypatch.setattr(key_sets, "ASK_AGAIN_S", 60.0)
    assert await key_set.find("fresh") is not None
    assert await key_set.find("stolen") is None


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_files, "CHECK_S", 0.01)


def replace_file(path: Path, data: bytes) -> None:
    """Replace it like a renewed one: by another file of the same name."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.rename(path)


async def role_soon(verifier: TokenVerifier, token: str) -> str:
    async with asyncio.timeout(20):
        while True:
            try:
                return (await verifier.verify(token)).role
            except LoginFailed:
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("looking_often")
async def test_a_renewed_secret_key_counts_without_a_restart(tmp_path: Path) -> None:
    """A file that cannot be used has no effect."""
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    section = TokensSection(secret_key_file=file)
    keys = await token_keys(section)
    verifier = TokenVerifier(section, keys)
    old, new = (jwt.encode({"sub": "a"}, key, algorithm="HS256") for key in (SECRET, SECRET[::-1]))
    assert (await verifier.verify(old)).role == "a"
    with structlog.testing.capture_logs() as lines:
        replace_file(file, b"short")
        async with asyncio.timeout(20):
            while not lines:
                await asyncio.sleep(0.01)
    assert lines[0]["log_level"] == "error" and (await verifier.verify(old)).role == "a"
    replace_file(file, SECRET[::-1])
    assert await role_soon(verifier, new) == "a"
    with pytest.raises(LoginFailed):
        await verifier.verify(old)
    await keys.close()


@pytest.mark.usefixtures("looking_often")
async def test_a_renewed_key_set_counts_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    first, second = (rsa.generate_private_key(65_537, 2_048) for _ in range(2))
    file.write_text(json.dumps({"keys": [row(first, "a")]}))
    section = TokensSection(jwks_file=file)
    keys = await token_keys(section)
    verifier = TokenVerifier(section, keys)
    replace_file(file, json.dumps({"keys": [row(second, "a")]}).encode())
    assert await role_soon(verifier, jwt.encode({"sub": "b"}, second, "RS256", headers={"kid": "a"})) == "b"
    with pytest.raises(LoginFailed):  # its key is no longer in the set
        await verifier.verify(jwt.encode({"sub": "b"}, first, "RS256", headers={"kid": "a"}))
    await keys.close()


@pytest.mark.parametrize(
    ("url", "is_fit"),
    [
        ("https://identity.example/keys", True), ("http://127.0.0.1:8080/keys", True), ("http://[::1]/keys", True),
        ("http://localhost/keys", True), ("http://identity.example/keys", False), ("http://10.0.0.1/keys", False),
        ("http://localhost.example/", False), ("http://127.0.0.1@identity.example/", False), ("http:///keys", False),
    ],
)  # fmt: skip
def test_keys_that_come_without_tls_are_refused(url: str, *, is_fit: bool) -> None:
    """A host in between could send its own keys."""
    with nullcontext() if is_fit else pytest.raises(ValidationError, match="https"):
        TokensSection(jwks_url=url)


def test_key_sets() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    secret = {"kty": "oct", "k": "AAAA", "kid": "b"}
    rows = [row(key, "a"), secret, row(key, "c", use="enc"), row(key, "d", alg="RS384")]
    found = parse_key_set(json.dumps({"keys": rows}).encode())
    assert {key_id: token_key.algorithms[0] for key_id, token_key in found.items()} == {"a": "RS256", "d": "RS384"}
    assert found["d"].algorithms == ("RS384",)
    for data in (b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[1]}', b'{"keys":[{"kty":"RSA","n":"x"}]}'):
        with pytest.raises(InvalidKey):
            parse_key_set(data)
    with pytest.raises(InvalidKey):
        parse_key_set(json.dumps({"keys": [row(key, "a", alg="HS256")]}).encode())


def test_one_key_of_no_use_leaves_the_others() -> None:
    """Providers publish keys of new kinds, and keys for encryption, together with those in use."""
    good = row(rsa.generate_private_key(65_537, 2_048), "good")
    other_curve = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256K1()).public_key()))
    strange: list[Any] = [
        other_curve | {"kid": "curve"}, {"kty": "RSA", "n": "x", "kid": "cut"}, {"kty": "EC", "crv": "P-999"},
        good | {"kid": "algorithm", "alg": "RSA-OAEP"}, good | {"kid": "list", "alg": ["RS256"]}, good | {"kid": 5},
        good | {"kty": ["RSA"]}, 7, None,
    ]  # fmt: skip
    for rows in ([*strange, good], [good, *strange]):
        assert list(parse_key_set(json.dumps({"keys": rows}).encode())) == ["good"]


@pytest.mark.usefixtures("looking_often")
async def test_a_key_that_cannot_be_read_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    section = TokensSection(secret_key_file=file)
    keys = await token_keys(section)
    verifier = TokenVerifier(section, keys)
    read, failures = Path.read_bytes, [OSError(errno.EMFILE, "too many open files")]

    def fail_once(path: Path) -> bytes:
        if failures:
            raise failures.pop()
        return read(path)

    monkeypatch.setattr(watched_files, "RETRY_S", 0.01)
    monkeypatch.setattr(Path, "read_bytes", fail_once)
    replace_file(file, SECRET[::-1])
    assert await role_soon(verifier, jwt.encode({"sub": "a"}, SECRET[::-1], algorithm="HS256")) == "a"
    await keys.close()
