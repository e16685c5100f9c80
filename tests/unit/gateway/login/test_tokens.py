"""Tokens that Pulsar accepts, and others."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.config.security import TokensSection
from gateway.login.key_sets import token_keys
from gateway.login.token_types import InvalidKey
from gateway.login.tokens import MAX_TOKEN_BYTES, TokenVerifier, public_key, secret_key
from gateway.requests.context import MAX_NAME_BYTES, Principal
from protocol.kafka.errors import ErrorCode
from protocol.sasl.failure import LoginFailed
from tests.support.tokens import Issuer, OneKey
from tests.unit.gateway.login.login_scene import Scene, without_waiting

SECRET = bytes(range(64))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


async def verifier_of(signer: Issuer, /, **settings: Any) -> TokenVerifier:
    section = TokensSection(public_key_file=signer.public_key_file, **settings)
    return TokenVerifier(section, await token_keys(section))


async def test_a_token_of_pulsar(issuer: Issuer) -> None:
    verifier = await verifier_of(issuer)
    claims = await verifier.verify(issuer.token("role-1", lifetime_s=60))
    assert claims.role == "role-1" and claims.expires_s is not None and 50 < claims.expires_s - time.time() <= 60
    assert (await verifier.verify(issuer.token("role-1", lifetime_s=None))).expires_s is None
    assert (await verifier.verify(issuer.token("r", aud="others", iss="me", iat=2**31))).role == "r"


async def test_a_secret_key_and_another_claim(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    section = TokensSection(secret_key_file=file, role_claim="roles")
    verifier = TokenVerifier(section, await token_keys(section))
    for algorithm in ("HS256", "HS384", "HS512"):
        with_secret = jwt.encode({"sub": "x", "roles": ["a", "b"]}, SECRET, algorithm=algorithm)
        assert (await verifier.verify(with_secret)).role == "a"
    with pytest.raises(LoginFailed, match="role"):
        await verifier.verify(jwt.encode({"sub": "x"}, SECRET, algorithm="HS256"))


def unsigned(claims: dict[str, Any], algorithm: str = "none") -> str:
    return ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": algorithm}, claims)) + "."


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed_with_public_key(issuer: Issuer) -> str:
    """As if the public key were a secret (CVE-2015-9235)."""
    key = issuer.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    token = unsigned({"sub": "admin"}, algorithm="HS256").removesuffix(".")
    return f"{token}.{encoded(hmac.digest(key, token.encode(), 'sha256'))}"


def of_another_key() -> str:
    return jwt.encode({"sub": "a"}, rsa.generate_private_key(65_537, 2_048), algorithm="RS256")


REFUSED: dict[str, Callable[[Issuer], str]] = {
    "expired": lambda issuer: issuer.token("a", lifetime_s=-1),
    "not yet": lambda issuer: issuer.token("a", nbf=int(time.time()) + 100),
    "unsigned": lambda issuer: unsigned({"sub": "a"}),
    "public key as secret": signed_with_public_key,
    "another key": lambda issuer: of_another_key(),
    "cut": lambda issuer: issuer.token("a")[:-10],
    "empty": lambda issuer: "",
    "no role": lambda issuer: issuer.token(""),
    "role that is no text": lambda issuer: issuer.token("\ud800"),
    "cluster that is no text": lambda issuer: issuer.token("a", cluster="t/\ud800"),
    "number as role": lambda issuer: jwt.encode({"sub": 5}, issuer.key, algorithm="RS256"),
    "endless": lambda issuer: issuer.token("a" * MAX_TOKEN_BYTES),
    "infinite": lambda issuer: jwt.encode({"sub": "a", "exp": 1e400}, issuer.key, algorithm="RS256"),
    "nested": lambda issuer: base64.urlsafe_b64encode(b'{"a":' * 5_000).decode() + ".e30.e30",
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_tokens_that_are_refused(issuer: Issuer, kind: str) -> None:
    token = REFUSED[kind](issuer)
    with pytest.raises(LoginFailed) as failed:
        await (await verifier_of(issuer, cluster_claim="cluster")).verify(token)
    assert len(token) < 20 or token[:20] not in str(failed.value)


async def test_audience_and_issuer(issuer: Issuer) -> None:
    verifier = await verifier_of(issuer, audience="gateway", issuer="us")
    assert (await verifier.verify(issuer.token("a", aud=["x", "gateway"], iss="us"))).role == "a"
    foreign = ({"aud": "x", "iss": "us"}, {"aud": "gateway", "iss": "them"})
    refused: list[dict[str, Any]] = [{}, {"aud": "gateway"}, *foreign]
    for claims in refused:
        with pytest.raises(LoginFailed):
            await verifier.verify(issuer.token("a", **claims))


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
async def test_elliptic_curves(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    found = public_key(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    token = jwt.encode({"sub": "a"}, key, algorithm=found.algorithms[0])
    section = TokensSection(public_key_file=Path("unused"))
    assert (await TokenVerifier(section, OneKey(found)).verify(token)).role == "a"


def test_keys_that_check_nothing() -> None:
    for data in (b"", b"-----BEGIN PUBLIC KEY-----\nx\n", b"\x30\x03abc"):
        with pytest.raises(InvalidKey):
            public_key(data)
    with pytest.raises(InvalidKey):
        secret_key(SECRET[:31])
    assert "\\x" not in repr(secret_key(SECRET))


# Logins with tokens


Log = Callable[[Scene], Awaitable[None]]


@pytest.mark.parametrize("user", ["", "role-1", "kafka/default"])
async def test_plain_with_a_token(issuer: Issuer, user: str) -> None:
    scene = Scene(tokens=await verifier_of(issuer))
    answer = await scene.log_in(user, "token:" + issuer.token("role-1", lifetime_s=60))
    assert answer["error_code"] == 0 and 50_000 < answer["session_lifetime_ms"] <= 60_000
    assert scene.last.principal == Principal(name="role-1")


@pytest.mark.parametrize("user", ["alice", "kafka/other"])
async def test_plain_with_a_token_of_another_user(issuer: Issuer, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)
    scene = Scene(tokens=await verifier_of(issuer))
    answer = await scene.log_in(user, "token:" + issuer.token("role-1"))
    assert answer["error_message"] == "Authentication failed: Invalid username or password"


async def test_bearer(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)
    scene = Scene(tokens=await verifier_of(issuer))
    await scene.shake_hands("OAUTHBEARER")
    answer = await scene.authenticate(f"n,,\x01auth=Bearer {issuer.token('role-1')}\x01\x01".encode())
    assert answer["error_code"] == 0 and scene.last.principal == Principal(name="role-1")


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("over", [0, 1])
async def test_a_name_has_a_longest_size(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, mechanism: str, over: int
) -> None:
    """The limit counts bytes. Other gateways could not be told a longer name."""
    without_waiting(monkeypatch)
    scene = Scene(tokens=await verifier_of(issuer))
    name = "ä" * (MAX_NAME_BYTES // 2) + "x" * over
    await scene.shake_hands(mechanism)
    token = issuer.token(name)
    message = f"\0\0token:{token}" if mechanism == "PLAIN" else f"n,,\x01auth=Bearer {token}\x01\x01"
    answer = await scene.authenticate(message.encode())
    if over:
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer["error_message"] == "Authentication failed: The name has 2049 bytes. The limit is 2048."
        assert scene.last.principal is None and scene.last.ends
        assert scene.counted(mechanism, "failed") == 1
    else:
        assert answer["error_code"] == 0 and scene.last.principal == Principal(name=name)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_nobody_logs_in_with_the_name_of_clients_without_login(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    """Such a client would have the rights that ACLs give to clients without a login."""
    without_waiting(monkeypatch)
    scene = Scene(tokens=await verifier_of(issuer))
    await scene.shake_hands(mechanism)
    token = issuer.token("ANONYMOUS")
    message = f"\0\0token:{token}" if mechanism == "PLAIN" else f"n,,\x01auth=Bearer {token}\x01\x01"
    answer = await scene.authenticate(message.encode())
    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert scene.last.principal is None and scene.last.ends and scene.counted(mechanism, "failed") == 1


GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"


@pytest.mark.parametrize(
    ("said", "text"), [(b"\x01", '{"status":"invalid_token"}'), (rb"\x01", GENERIC), (b"", GENERIC)],
    ids=["acknowledged", "as Sarama writes it", "nothing"],
)  # fmt: skip
async def test_a_refused_token(issuer: Issuer, monkeypatch: pytest.MonkeyPatch, said: bytes, text: str) -> None:
    without_waiting(monkeypatch)
    refused = Scene(tokens=await verifier_of(issuer))
    await refused.shake_hands("OAUTHBEARER")
    answer = await refused.authenticate(b"n,,\x01auth=Bearer a.b.c\x01\x01")
    assert (answer["error_code"], answer["auth_bytes"]) == (0, b'{"status":"invalid_token"}')
    assert refused.last.ends is None and refused.last.principal is None
    answer = await refused.authenticate(said)
    assert answer["error_code"] == 58 and answer["error_message"] == text
    assert refused.last.ends


@pytest.mark.parametrize("expires", [9_223_372_036_854_775, 2**63 - 1, 9.3e18, 1e308])
async def test_a_token_that_expires_at_the_end_of_time(issuer: Issuer, expires: float) -> None:
    scene = Scene(tokens=await verifier_of(issuer))
    answer = await scene.log_in("", "token:" + issuer.token("role-1", exp=expires))
    assert answer["error_code"] == 0
    assert 0 < answer["session_lifetime_ms"] * 1_000_000 < 2**63, "clients count in nanoseconds"
    assert not scene.is_for_login("Metadata", 1)
