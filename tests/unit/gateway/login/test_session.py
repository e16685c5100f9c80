"""The states of a login, and everything that ends one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time

import pytest
from prometheus_client import generate_latest

from gateway.login.session import MAX_FRAME_BYTES
from gateway.requests.context import Principal
from protocol.kafka.codec import MalformedRequest
from protocol.kafka.errors import ErrorCode
from protocol.kafka.fields import MAX_STRING_BYTES
from protocol.sasl.scram import ScramMechanism
from tests.support.raw_client import encode_request
from tests.unit.gateway.login.login_scene import EVERY, PASSWORD, USER, Scene, without_waiting
from tests.unit.protocol.sasl.test_scram import HonestClient

SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_plain(scene: Scene) -> None:
    versions = await scene.ask("ApiVersions", 3, **SOFTWARE)
    assert {17, 36} <= {row["api_key"] for row in versions["api_keys"]}
    assert sorted((await scene.shake_hands("PLAIN"))["mechanisms"]) == sorted(EVERY)
    answer = await scene.authenticate(f"\0{USER}\0{PASSWORD}".encode())
    assert (answer["error_code"], answer["auth_bytes"], answer["session_lifetime_ms"]) == (0, b"", 0)
    assert scene.last.principal == Principal(name=USER) and scene.last.ends is None
    for api, version in (("Metadata", 1), ("SaslHandshake", 1), ("SaslAuthenticate", 1), ("ApiVersions", 0)):
        assert not scene.is_for_login(api, version)
    assert scene.counted("PLAIN", "done") == 1


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("handshake", [0, 1])
async def test_scram(scene: Scene, mechanism: ScramMechanism, handshake: int) -> None:
    await scene.shake_hands(mechanism.value, handshake)

    async def say(token: bytes) -> bytes:
        if handshake:
            return bytes((await scene.authenticate(token))["auth_bytes"])
        scene.last = await scene.session.answer(bytearray(token))
        data = b"".join(map(bytes, scene.last.buffers))
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        return data[4:]

    challenge = await say(b"n,,n=alice,r=abc")
    assert scene.last.principal is None
    assert (await say(HonestClient(mechanism, PASSWORD).final("n=alice,r=abc", challenge.decode())))[:2] == b"v="
    assert scene.last.principal == Principal(name=USER)


@pytest.mark.parametrize(
    ("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD), ("", ""), (USER, ""), (USER, "token:x.y.z")]
)
async def test_wrong_passwords(scene: Scene, user: str, password: str) -> None:
    answer = await scene.log_in(user, password)
    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer["error_message"].startswith("Authentication failed: ")
    assert scene.last.ends == "authentication failed" and scene.last.principal is None
    assert scene.counted("PLAIN", "failed") == 1


async def test_an_unknown_user_gets_the_response_of_a_wrong_password() -> None:
    answers = []
    for user in (USER, "nobody"):
        plain = await Scene().log_in(user, "wrong")
        scram = Scene()
        await scram.shake_hands("SCRAM-SHA-512")
        challenge = (await scram.authenticate(f"n,,n={user},r=abc".encode()))["auth_bytes"].decode()
        final = HonestClient(ScramMechanism.SCRAM_SHA_512, "wrong").final(f"n={user},r=abc", challenge)
        salt = base64.b64decode(challenge.split(",")[1][2:])
        is_usual = re.fullmatch(rb"[0-9a-z]{23,26}", salt) is not None
        answers.append((plain, await scram.authenticate(final), is_usual, challenge.split(",")[2]))
    assert answers[0] == answers[1]
    assert answers[0][1]["error_message"] == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    )


async def test_a_foreign_authorization_id(scene: Scene) -> None:
    await scene.shake_hands("PLAIN")
    answer = await scene.authenticate(f"root\0{USER}\0{PASSWORD}".encode())
    assert "authorization id" in answer["error_message"] and scene.last.principal is None


async def test_an_unknown_mechanism() -> None:
    scene = Scene(offered=("SCRAM-SHA-256",))
    answer = await scene.shake_hands("PLAIN")
    assert answer == {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ["SCRAM-SHA-256"]}
    assert scene.last.ends == "authentication failed"


@pytest.mark.parametrize(
    ("api", "version"), [("Metadata", 1), ("Produce", 3), ("SaslAuthenticate", 0), ("InitProducerId", 0)]
)
async def test_requests_before_login(scene: Scene, api: str, version: int) -> None:
    assert await scene.ask(api, version) == {}
    assert scene.last.ends == "request before login"


async def test_versions_are_told_once(scene: Scene) -> None:
    unknown = bytearray(encode_request("ApiVersions", 3, SOFTWARE))
    unknown[2:4] = (99).to_bytes(2, "big")
    await scene.session.answer(unknown)
    await scene.ask("ApiVersions", 3, client_software_name="", client_software_version="")
    await scene.ask("ApiVersions", 3, **SOFTWARE)
    assert scene.last.ends is None
    assert await scene.ask("ApiVersions", 3, **SOFTWARE) == {}
    assert scene.last.ends == "request before login"


async def test_little_is_kept_of_what_unauthenticated_clients_call_themselves() -> None:
    """The names are labels of a metric."""
    long = "x" * MAX_STRING_BYTES
    scene = Scene()
    answer = await scene.ask("ApiVersions", 3, client_software_name=long, client_software_version=long)
    assert answer["error_code"] == 0
    assert b"x" * 1_000 not in generate_latest(scene.metrics.registry)


@pytest.mark.parametrize(("api", "version"), [("ApiVersions", 0), ("SaslHandshake", 1)])
async def test_other_requests_than_tokens(scene: Scene, api: str, version: int) -> None:
    await scene.shake_hands("PLAIN")
    assert (await scene.ask(api, version))["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
    assert scene.last.ends == "request before login"


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11\0\x01\0\0\0\1", b"\0\x11\0\x09\0\0\0\1\xff\xff", b"\0\x24"])
async def test_what_is_no_request(scene: Scene, frame: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        assert (await scene.session.answer(bytearray(frame))).ends is not None


async def test_frames_before_login_are_small(scene: Scene) -> None:
    with pytest.raises(MalformedRequest):
        await scene.session.answer(bytearray(MAX_FRAME_BYTES + 1))


async def test_a_session_ends(scene: Scene) -> None:
    scene = Scene(max_reauth_ms=60_000)
    answer = await scene.log_in(version=1)
    assert answer["session_lifetime_ms"] == 60_000
    assert not scene.is_for_login("Metadata", 1)
    scene.session._expires_s = time.monotonic() - 1
    assert await scene.ask("Metadata", 1) == {} and scene.last.ends == "session expired"


async def test_a_client_logs_in_again() -> None:
    scene = Scene(max_reauth_ms=60_000)
    await scene.log_in()
    scene.session._expires_s = time.monotonic() - 1
    assert (await scene.log_in())["error_code"] == 0
    assert scene.last.principal == Principal(name=USER)
    assert not scene.is_for_login("Metadata", 1)
    assert scene.counted("PLAIN", "again") == 1


async def test_not_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.login.session.REAUTH_PAUSE_S", 100.0)
    scene = Scene(max_reauth_ms=60_000)
    await scene.log_in()
    await scene.log_in()
    assert not scene.is_for_login("SaslHandshake", 1, mechanism="PLAIN")


async def test_not_so_often_even_after_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: what is no login then is a request, and its connection is closed."""
    monkeypatch.setattr("gateway.login.session.REAUTH_PAUSE_S", 100.0)
    scene = Scene(max_reauth_ms=60_000)
    await scene.log_in()
    await scene.log_in()
    scene.session._expires_s = time.monotonic() - 1
    assert await scene.shake_hands("PLAIN") == {} and scene.last.ends == "session expired"


async def test_the_principal_cannot_change() -> None:
    scene = Scene(max_reauth_ms=60_000)
    await scene.log_in()
    answer = await scene.log_in("bob", "b")
    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer["error_message"] == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert scene.last.principal is None and scene.last.ends


async def test_the_mechanism_stays() -> None:
    scene = Scene(max_reauth_ms=60_000)
    await scene.log_in()
    assert (await scene.shake_hands("SCRAM-SHA-256"))["error_code"] == 0
    assert await scene.authenticate(b"n,,n=alice,r=abc") == {}
    assert scene.last.ends


async def test_a_login_that_is_left_leaves_nothing(scene: Scene) -> None:
    """The connection is lost while the password is checked."""
    await scene.shake_hands("PLAIN")
    answering = asyncio.ensure_future(scene.authenticate(f"\0{USER}\0{PASSWORD}".encode()))
    await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert scene.counted("PLAIN", "done") == 0
