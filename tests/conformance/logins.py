"""Requests and recorded responses of logins, for the tests of SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import jwt

from protocol.sasl.scram import ScramMechanism as Mechanism
from tests.conformance.conversation import Conversation
from tests.support.raw_client import ConnectionClosedError
from tests.support.tokens import Issuer
from tests.unit.protocol.sasl.test_scram import HonestClient

SUPER_USER = "root"
USERS = {"alice": "alice-secret", "bob": "bob-secret", SUPER_USER: "root-secret"}
SCRAM = [mechanism.value for mechanism in Mechanism]
MECHANISMS = ["PLAIN", *SCRAM, "OAUTHBEARER"]
REAUTH_MS = 600_000
SOFTWARE = {"client_software_name": "conformance", "client_software_version": "1"}
TOO_LARGE = 512 * 1024 + 1


def shake_hands(conversation: Conversation, mechanism: str, version: int = 1) -> None:
    answer = conversation.client.call("SaslHandshake", version, mechanism=mechanism)
    conversation.say((answer["error_code"], sorted(answer["mechanisms"])))


def authenticate(conversation: Conversation, token: bytes, version: int = 2) -> dict[str, Any]:
    """Records the error with its text."""
    answer = conversation.client.call("SaslAuthenticate", version, auth_bytes=token)
    conversation.say((answer["error_code"], answer["error_message"], answer.get("session_lifetime_ms")))
    return answer


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    return "\0".join((authorization_id, user, password)).encode()


def bearer(token: str, authorization_id: str = "") -> bytes:
    return f"n,{authorization_id and f'a={authorization_id}'},\x01auth=Bearer {token}\x01\x01".encode()


def then_metadata(conversation: Conversation) -> None:
    """Record whether the connection serves requests."""
    conversation.client.send("Metadata", 1, topics=[])
    try:
        conversation.client.read_frame()
    except (ConnectionClosedError, TimeoutError) as error:
        conversation.say(type(error).__name__)
    else:
        conversation.say("serves")


def scram(
    conversation: Conversation, mechanism: str, user: str, password: str, say: Callable[[bytes], bytes], **final: Any
) -> None:
    challenge = say(f"n,,n={user},r=abc".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    conversation.say((sorted(fields), fields["i"], fields["r"][:3], len(fields["r"]) > 20))
    client = HonestClient(Mechanism(mechanism), password)
    answer = say(client.final(f"n={user},r=abc", challenge, **final))
    conversation.say((answer[:2], len(base64.b64decode(answer[2:]))))


def signed(issuer: Issuer, role: str, **claims: Any) -> str:
    """A token as Kafka requires it: with the key's id, times and a scope."""
    facts = {"sub": role, "iat": 1_700_000_000, "exp": 4_000_000_000, "scope": "x"} | claims
    return jwt.encode(facts, issuer.key, algorithm="RS256", headers={"kid": "one"})
