"""SaslHandshake (key 17) v0 and v1, SaslAuthenticate (key 36) v0 to v2: every way to log in, and to fail."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from protocol.sasl.scram import ScramMechanism as Mechanism
from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.logins import (
    SCRAM,
    SOFTWARE,
    TOO_LARGE,
    USERS,
    authenticate,
    bearer,
    plain,
    scram,
    shake_hands,
    signed,
    then_metadata,
)
from tests.support.raw_client import encode_request
from tests.support.tokens import Issuer
from tests.unit.protocol.sasl.test_scram import HonestClient


@pytest.fixture(scope="module")
def pair(pair_with_logins: Pair) -> Pair:
    return pair_with_logins


# Logging in


@case("SaslAuthenticate")
def test_plain(conversation: Conversation, version: int) -> None:
    conversation.client.call("ApiVersions", 3, **SOFTWARE)
    shake_hands(conversation, "PLAIN")
    authenticate(conversation, plain("alice", USERS["alice"]), version)
    then_metadata(conversation)


@case("SaslHandshake", [0])
def test_plain_in_bare_tokens(conversation: Conversation, version: int) -> None:
    shake_hands(conversation, "PLAIN", version)
    conversation.client.send_frame(plain("alice", USERS["alice"]))
    conversation.outcome()
    then_metadata(conversation)


@case("SaslAuthenticate")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram(conversation: Conversation, version: int, mechanism: str) -> None:
    shake_hands(conversation, mechanism)
    scram(
        conversation, mechanism, "alice", USERS["alice"],
        lambda token: bytes(authenticate(conversation, token, version)["auth_bytes"]),
    )  # fmt: skip
    then_metadata(conversation)


@case("SaslHandshake", [0])
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_in_bare_tokens(conversation: Conversation, version: int, mechanism: str) -> None:
    shake_hands(conversation, mechanism, version)

    def say(token: bytes) -> bytes:
        conversation.client.send_frame(token)
        return conversation.client.read_frame()

    scram(conversation, mechanism, "alice", USERS["alice"], say)
    then_metadata(conversation)


@case("SaslAuthenticate")
def test_bearer(conversation: Conversation, version: int, issuer: Issuer) -> None:
    shake_hands(conversation, "OAUTHBEARER")
    token = signed(issuer, "alice")
    answer = conversation.client.call("SaslAuthenticate", version, auth_bytes=bearer(token))
    conversation.say((answer["error_code"], answer["error_message"], answer["auth_bytes"]))
    then_metadata(conversation)


# Failing


@case("SaslAuthenticate")
@pytest.mark.parametrize(
    "token",
    [
        plain("alice", "wrong"), plain("nobody", "x"), plain("", "x"), plain("alice", ""), b"", b"alice",
        b"a\0b\0c\0d", plain("alice", USERS["alice"], "bob"), plain("alice", USERS["alice"], "alice"),
    ],
)  # fmt: skip
def test_plain_tokens(conversation: Conversation, version: int, token: bytes) -> None:
    shake_hands(conversation, "PLAIN")
    authenticate(conversation, token, version)
    then_metadata(conversation)


@case("SaslHandshake", [0])
def test_a_wrong_password_in_a_bare_token(conversation: Conversation, version: int) -> None:
    shake_hands(conversation, "PLAIN", version)
    conversation.client.send_frame(plain("alice", "wrong"))
    conversation.outcome()


@case("SaslAuthenticate", [0, 2])
@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("kind", ["password", "nonce", "form"])
def test_wrong_proofs(conversation: Conversation, version: int, mechanism: str, kind: str) -> None:
    shake_hands(conversation, mechanism)
    challenge = authenticate(conversation, b"n,,n=alice,r=abc", version)["auth_bytes"].decode()
    client = HonestClient(Mechanism(mechanism), "wrong" if kind == "password" else USERS["alice"])
    nonce = "another" if kind == "nonce" else None
    final = client.final("n=alice,r=abc", challenge, nonce=nonce)
    authenticate(conversation, b"x" if kind == "form" else final, version)
    then_metadata(conversation)


@case("SaslAuthenticate", [0, 2])
@pytest.mark.parametrize("token", [b"", b"x", b"y,,n=alice,r=x", b"n,a=bob,n=alice,r=x", b"n,,n=al=ice,r=x"])
def test_first_messages(conversation: Conversation, version: int, token: bytes) -> None:
    shake_hands(conversation, SCRAM[0])
    authenticate(conversation, token, version)
    then_metadata(conversation)


@case("SaslAuthenticate", [2])
def test_a_user_that_scram_does_not_know(conversation: Conversation, version: int) -> None:
    """Kafka refuses immediately, the gateway after the client's proof. The error is the same."""
    shake_hands(conversation, SCRAM[1])
    answer = conversation.client.call("SaslAuthenticate", version, auth_bytes=b"n,,n=nobody,r=abc")
    if not answer["error_code"]:
        final = HonestClient(Mechanism(SCRAM[1]), "x").final("n=nobody,r=abc", answer["auth_bytes"].decode())
        answer = conversation.client.call("SaslAuthenticate", version, auth_bytes=final)
    conversation.say((answer["error_code"], answer["error_message"]))
    then_metadata(conversation)


@case("SaslAuthenticate", [0, 2])
@pytest.mark.parametrize("kind", ["expired", "foreign", "unsigned", "no token"])
def test_tokens_that_are_refused(conversation: Conversation, version: int, kind: str, issuer: Issuer) -> None:
    shake_hands(conversation, "OAUTHBEARER")
    tokens = {
        "expired": signed(issuer, "alice", exp=1_700_000_100),
        "foreign": signed(issuer, "alice")[:-8] + "AAAAAAAA",
        "unsigned": jwt.encode({"sub": "alice", "exp": 4_000_000_000}, "", algorithm="none"),
        "no token": "x",
    }
    answer = authenticate(conversation, bearer(tokens[kind]), version)
    conversation.say(json.loads(answer["auth_bytes"])["status"])
    authenticate(conversation, b"\x01", version)
    then_metadata(conversation)


@case("SaslAuthenticate", [2])
@pytest.mark.parametrize("said", [b"", rb"\x01", b"\x01\x01"])
def test_a_refusal_that_is_not_acknowledged(
    conversation: Conversation, version: int, said: bytes, issuer: Issuer
) -> None:
    """Sarama writes the one byte as four characters."""
    shake_hands(conversation, "OAUTHBEARER")
    authenticate(conversation, bearer(signed(issuer, "alice")[:-8] + "AAAAAAAA"), version)
    authenticate(conversation, said, version)
    then_metadata(conversation)


@case("SaslAuthenticate", [0, 2])
@pytest.mark.parametrize("token", [b"", b"x", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Bearer\x01\x01"])
def test_bearer_messages(conversation: Conversation, version: int, token: bytes) -> None:
    shake_hands(conversation, "OAUTHBEARER")
    authenticate(conversation, token, version)
    then_metadata(conversation)


@case("SaslHandshake")
@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain", "SCRAM-SHA-1"])
def test_mechanisms_that_are_not_offered(conversation: Conversation, version: int, mechanism: str) -> None:
    shake_hands(conversation, mechanism, version)
    then_metadata(conversation)


# Out of turn


@case("SaslHandshake", [1])
@pytest.mark.parametrize(
    ("api", "number", "fields"),
    [("Metadata", 1, {"topics": []}), ("SaslAuthenticate", 2, {"auth_bytes": plain("alice", USERS["alice"])})],
)
def test_requests_before_login(
    conversation: Conversation, version: int, api: str, number: int, fields: dict[str, Any]
) -> None:
    conversation.client.send(api, number, **fields)
    conversation.outcome()


@case("SaslHandshake", [1])
def test_versions_are_told_once(conversation: Conversation, version: int) -> None:
    unknown = bytearray(encode_request("ApiVersions", 3, SOFTWARE))
    unknown[2:4] = (99).to_bytes(2, "big")
    conversation.client.send_frame(bytes(unknown))
    conversation.client.read_frame()
    wrong = conversation.client.call("ApiVersions", 3, client_software_name="-", client_software_version="-")
    conversation.say(wrong["error_code"])
    conversation.say(conversation.client.call("ApiVersions", 3, **SOFTWARE)["error_code"])
    conversation.client.send("ApiVersions", 3, **SOFTWARE)
    conversation.outcome()


@case("SaslHandshake", [1])
@pytest.mark.parametrize("api", ["ApiVersions", "SaslHandshake"])
def test_other_requests_than_tokens(conversation: Conversation, version: int, api: str) -> None:
    shake_hands(conversation, "PLAIN")
    answer = conversation.client.call(api, 1, **({"mechanism": "PLAIN"} if api == "SaslHandshake" else {}))
    conversation.say(answer["error_code"])
    then_metadata(conversation)


@case("SaslHandshake", [1])
@pytest.mark.parametrize(
    "frame", [b"\0", b"\x60\x01\x02", bytes(8), b"\0\x11\0\x09" + bytes(20), b"\0\x11\0\1\0\0\0\1\xff\xff"]
)
def test_first_frames_that_are_no_requests(conversation: Conversation, version: int, frame: bytes) -> None:
    conversation.client.send_frame(frame)
    conversation.outcome()


@case("SaslHandshake", [1])
@pytest.mark.parametrize("size", [TOO_LARGE, 2**31 - 1, -1])
def test_a_first_frame_of_a_size_that_is_not_allowed(conversation: Conversation, version: int, size: int) -> None:
    conversation.client.send_raw(size.to_bytes(4, "big", signed=True) + bytes(100))
    conversation.outcome()


# Logging in again


@case("SaslAuthenticate", [0, 1, 2])
def test_again_as_the_same(conversation: Conversation, version: int) -> None:
    for _ in range(2):
        shake_hands(conversation, "PLAIN")
        authenticate(conversation, plain("alice", USERS["alice"]), version)
        then_metadata(conversation)


@case("SaslAuthenticate", [0, 2])
def test_again_as_another(conversation: Conversation, version: int) -> None:
    for user in ("alice", "bob"):
        shake_hands(conversation, "PLAIN")
        authenticate(conversation, plain(user, USERS[user]), version)
    then_metadata(conversation)


@case("SaslAuthenticate", [2])
def test_again_with_a_wrong_password(conversation: Conversation, version: int) -> None:
    for password in (USERS["alice"], "wrong"):
        shake_hands(conversation, "PLAIN")
        authenticate(conversation, plain("alice", password), version)
    then_metadata(conversation)


@case("SaslAuthenticate", [2])
def test_again_with_another_mechanism(conversation: Conversation, version: int) -> None:
    shake_hands(conversation, "PLAIN")
    authenticate(conversation, plain("alice", USERS["alice"]), version)
    shake_hands(conversation, SCRAM[0])
    conversation.client.send("SaslAuthenticate", version, auth_bytes=b"n,,n=alice,r=abc")
    conversation.outcome()


@case("SaslAuthenticate", [2])
def test_again_at_once(conversation: Conversation, version: int) -> None:
    """Not within a second of the last login; then a handshake is an ordinary request, and is refused."""
    for _ in range(2):
        shake_hands(conversation, "PLAIN")
        authenticate(conversation, plain("alice", USERS["alice"]), version)
    shake_hands(conversation, "PLAIN")
    then_metadata(conversation)


@case("SaslAuthenticate", [0, 2])
def test_a_token_when_logged_in(conversation: Conversation, version: int) -> None:
    shake_hands(conversation, "PLAIN")
    authenticate(conversation, plain("alice", USERS["alice"]), version)
    authenticate(conversation, plain("alice", USERS["alice"]), version)
    then_metadata(conversation)


@case("SaslAuthenticate", [2])
def test_requests_while_logging_in_again(conversation: Conversation, version: int) -> None:
    shake_hands(conversation, "PLAIN")
    authenticate(conversation, plain("alice", USERS["alice"]), version)
    shake_hands(conversation, "PLAIN")
    answer = conversation.client.call("ApiVersions", 1)
    conversation.say(answer["error_code"])
    then_metadata(conversation)
