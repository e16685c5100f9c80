"""Data before a login: the mechanisms' messages, and whole conversations of unknown clients."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import cast

import jwt
import structlog

from gateway.config.gateway_config import Config
from gateway.config.security import TokensSection
from gateway.dispatch import Dispatcher
from gateway.login.audit import LoginAudit
from gateway.login.credentials import ConfiguredUsers
from gateway.login.exchanges import Mechanisms
from gateway.login.failed_logins import FailedLogins
from gateway.login.session import Logins, LoginSession
from gateway.login.tokens import TokenVerifier, secret_key
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import Cluster
from gateway.requests.context import MAX_NAME_BYTES, Client, Listener
from protocol.kafka.codec import MalformedRequest
from protocol.sasl.failure import LoginFailed
from protocol.sasl.oauth_bearer import parse_bearer
from protocol.sasl.plain import parse_plain
from protocol.sasl.scram import ScramMechanism, ScramServer
from protocol.sasl.scram_forms import PasswordForm, unknown_user
from tests.fuzz.target import Target, reason
from tests.support.raw_client import encode_request
from tests.support.tokens import OneKey

SECRET = bytes(32)
BEARER = b"n,,\x01auth=Bearer e30.e30.x\x01\x01"
FIRST = b"n,,n=alice,r=abcdef"
FINAL = b"c=biws,r=abcdefnonce,p=" + b"A" * 43 + b"="


def _message_seeds(random: Random) -> Sequence[bytes]:
    return [b"\0alice\0secret", b"a\0b\0c", FIRST, b"n,a=x,n=x=2C,r=1,x=y", FINAL, BEARER, b"n,a=x,\x01a=b\x01\x01"]


def check_message(data: bytes) -> str:
    outcomes = []
    plain = partial(parse_plain, max_name_bytes=MAX_NAME_BYTES)
    for parse in (plain, parse_bearer, ScramServer(ScramMechanism.SCRAM_SHA_256, "nonce").first, _final):
        try:
            parse(data)
        except LoginFailed as failed:
            outcomes.append("".join(word[0] for word in str(failed).split()))  # the whole texts would be cut off
        else:
            outcomes.append("parsed")
    return " | ".join(outcomes)


def _final(data: bytes) -> None:
    server = ScramServer(ScramMechanism.SCRAM_SHA_256, "nonce")
    server.first(b"n,,n=alice,r=abcdef")
    server.challenge(unknown_user(PasswordForm(ScramMechanism.SCRAM_SHA_256), "alice", SECRET))
    server.final(data)
    raise AssertionError("a proof of a password that nobody has")


# Conversations


def _conversation_seeds(random: Random) -> Sequence[bytes]:
    versions = encode_request("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "1"})
    seeds = []
    for handshake in (0, 1):
        for mechanism, tokens in (("SCRAM-SHA-256", (FIRST, FINAL)), ("OAUTHBEARER", (BEARER, b"\x01"))):
            shake = encode_request("SaslHandshake", handshake, {"mechanism": mechanism})
            said = [_authenticate(token) if handshake else token for token in tokens]
            seeds += [_sized(versions, shake, *said), _sized(shake, *said, shake)]
    return [*seeds, _sized(encode_request("Metadata", 1, {"topics": []})), _sized(versions, versions)]


def _authenticate(token: bytes) -> bytes:
    return encode_request("SaslAuthenticate", 2, {"auth_bytes": token})


def _sized(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


class _UnauthenticatedClients:
    """What all their sessions share, created at first use."""

    def __init__(self) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        metrics = Metrics()
        self.loop = asyncio.new_event_loop()
        fleet = SimpleNamespace(epoch=1, transaction_version=2, incarnation="")
        self.dispatcher = Dispatcher(cast(Cluster, SimpleNamespace(config=Config(), metrics=metrics, fleet=fleet)))
        self.context = self.dispatcher.context(Client("127.0.0.1:1"), Listener(""))
        tokens = TokenVerifier(TokensSection(jwks_url="https://unused"), OneKey(secret_key(SECRET)))
        offered = ("SCRAM-SHA-256", "OAUTHBEARER")
        mechanisms = Mechanisms(ConfiguredUsers({}, b"secret"), tokens)
        self.logins = Logins(mechanisms, offered, 0, LoginAudit(metrics), FailedLogins(), failure_delay_s=0)


_clients: list[_UnauthenticatedClients] = []


def check_conversation(data: bytes) -> str:
    """Whatever is sent, no client logs in, and nothing is answered after the end."""
    if not _clients:
        _clients.append(_UnauthenticatedClients())
    return _clients[0].loop.run_until_complete(_converse(data, _clients[0]))


async def _converse(data: bytes, shared: _UnauthenticatedClients) -> str:
    # No delay for earlier failures.
    session = LoginSession(shared.logins._replace(failures=FailedLogins()), shared.dispatcher, shared.context)
    outcome, position = "", 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        frame = bytearray(data[position + 4 : position + 4 + size])
        position += 4 + size
        assert session.takes(frame)
        try:
            answer = await session.answer(frame)
        except MalformedRequest as error:
            return f"{outcome} {reason(error)}"
        assert answer.principal is None, "an unauthenticated client has logged in"
        outcome += "a" if answer.buffers else "-"
        if answer.ends is not None:
            return f"{outcome} {answer.ends}"
    return outcome[:8]


def _token_seeds(random: Random) -> Sequence[bytes]:
    foreign = jwt.encode({"sub": "a"}, b"x" * 32, algorithm="HS256")
    unsigned = jwt.encode({"sub": "a"}, "", algorithm="none")
    return [foreign.encode(), unsigned.encode(), b"e30.e30.", b".."]


def check_token(data: bytes) -> str:
    if not _clients:
        _clients.append(_UnauthenticatedClients())
    tokens = _clients[0].logins.mechanisms.tokens
    assert tokens is not None
    try:
        _clients[0].loop.run_until_complete(tokens.verify(data.decode("utf-8", "replace")))
    except LoginFailed as failed:
        return str(failed)
    raise AssertionError("a token that nobody has signed")


TARGETS = (
    Target("SASL messages", _message_seeds, check_message),
    Target("frames before login", _conversation_seeds, check_conversation),
    Target("tokens", _token_seeds, check_token),
)
