"""The other end of a connection: it knows which answers it may get, in which order, and what it must not get."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from random import Random
from typing import NamedTuple

from protocol.kafka import codec
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import ApiVersionsRequest
from protocol.kafka.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from protocol.kafka.messages.login import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import FetchRequest, ProduceRequest
from protocol.kafka.messages.topics import MetadataRequest
from protocol.sasl import oauth_bearer
from protocol.sasl.scram import ScramMechanism
from tests.unit.gateway.network.whole.forms import Form
from tests.unit.gateway.network.whole.gateway import Request, WholeGateway
from tests.unit.gateway.network.whole.logins import PASSWORDS, SCRAM, LogsInBy
from tests.unit.protocol.sasl.test_scram import HonestClient

PLAIN = Form()
NAME_CHARACTERS = 30_000
WITH_ANSWERS = frozenset({"malformed request", "unsupported request", "session expired", "end of stream", None})
"""What ends a connection after the answers to what has begun before."""


class Sent(NamedTuple):
    """A request that has an answer."""

    correlation_id: int
    answered: Callable[[bytes], None] | None = None
    """Gets the answer."""
    is_bare: bool = False
    """The answer has no header."""


@cache
def body_of(api: str) -> tuple[type[Message], int, Message]:
    name = MetadataRequest.MetadataRequestTopic(name="n" * NAME_CHARACTERS)
    known: dict[str, tuple[type[Message], int, Message]] = {
        "ApiVersions": (ApiVersionsRequest, 0, ApiVersionsRequest()),
        "Metadata": (MetadataRequest, 9, MetadataRequest(topics=[])),
        "large Metadata": (MetadataRequest, 9, MetadataRequest(topics=[name] * 3)),
        "Produce": (ProduceRequest, 9, ProduceRequest(acks=-1, timeout_ms=1)),
        "Produce acks=1": (ProduceRequest, 7, ProduceRequest(acks=1, timeout_ms=1)),
        "Produce acks=0": (ProduceRequest, 7, ProduceRequest(acks=0, timeout_ms=1)),
        "Fetch": (FetchRequest, 11, FetchRequest(max_wait_ms=500)),
        "FindCoordinator": (FindCoordinatorRequest, 3, FindCoordinatorRequest(key="g")),
        "JoinGroup": (JoinGroupRequest, 5, JoinGroupRequest(group_id="g")),
    }
    return known[api]


APIS = ["ApiVersions", "Metadata", "large Metadata", "Fetch", "FindCoordinator", "JoinGroup"]
APIS += ["Produce", "Produce acks=1", "Produce acks=0"] * 2


@cache
def frame_of(api: str) -> bytes:
    kind, version, request = body_of(api)
    return b"".join(map(bytes, codec.encode_request(kind, version, 0, "c", request)))


def first_of(user: str) -> str:
    return f"n={user},r=abc"


@cache
def proof(user: str, challenge: str) -> bytes:
    return HonestClient(ScramMechanism.SCRAM_SHA_256, PASSWORDS[user]).final(first_of(user), challenge)


class WholeClient:
    def __init__(
        self,
        gateway: WholeGateway,
        random: Random,
        *,
        logs_in: bool,
        host: str,
        form: Form = PLAIN,
        way: LogsInBy | None = None,
    ) -> None:
        """Without a `way` to log in, it chooses one when it logs in first."""
        self.gateway, self.random, self.logs_in = gateway, random, logs_in
        self.loop = asyncio.get_running_loop()
        self.end, self.address = gateway.connect(logs_in=logs_in, address=host, form=form)
        self.form = form
        self._ids = count(1)
        self.out, self._in = bytearray(), bytearray()
        self.expected: deque[Sent] = deque()
        self.reads = True
        self.knows_login = not logs_in
        """The client has logged in."""
        self._way = way
        """Who logs in again uses the same."""
        if way is not None:
            gateway.users[self.address] = way.user
        self._failing_login: int | None = None
        """The first request of a login that has not succeeded."""
        self.is_logging_in = False
        """It must not ask for anything now."""
        self.awaits_login = False
        """It must not log in again now."""
        self.may_be_refused = False
        """It has sent something that ends a connection."""
        self.is_doomed = False
        """What it has sent last ends the connection for sure. It says no more that could be understood."""
        self.too_early: set[int] = set()
        """Requests that must not be served."""
        self.half_closed = self.left = self.ended = False
        if not (form.is_valid and form.is_trusted):
            self.is_doomed = self.may_be_refused = True

    # What it says

    def _send(self, frame: bytes) -> int:
        correlation_id = next(self._ids)
        self.out += frame[:8] + correlation_id.to_bytes(4, "big") + frame[12:]
        return correlation_id

    @property
    def may_speak(self) -> bool:
        return not (self.half_closed or self.left or self.is_doomed)

    def ask(self, api: str) -> None:
        if not self.may_speak:
            return
        correlation_id = self._send(frame_of(api))
        if self.is_logging_in:
            self.may_be_refused = True
        elif not self.knows_login:  # ApiVersions may be asked for, once
            self.may_be_refused = True
            self.too_early.add(correlation_id)
        if api != "Produce acks=0":
            self.expected.append(Sent(correlation_id))

    def _say(self, request: Message, version: int, answered: Callable[[bytes], None] | None = None) -> int:
        frame = b"".join(map(bytes, codec.encode_request(type(request), version, 0, "c", request)))
        correlation_id = self._send(frame)
        self.expected.append(Sent(correlation_id, answered))
        return correlation_id

    def log_in(self, *, right: bool) -> None:
        """Also again."""
        if not self.may_speak or not self.logs_in or self.awaits_login:
            return
        self.is_logging_in = self.awaits_login = True
        self.may_be_refused = self.may_be_refused or not right
        if self._way is None:
            self._way = LogsInBy(self.random.choice(["PLAIN", SCRAM]))
        user = self._way.user if right or not self.knows_login else self._way.someone(self.random)
        is_forged = not right and user == self._way.user
        if self._way.mechanism == SCRAM:
            self._begin_login(SaslHandshakeRequest(mechanism=SCRAM), 1)
            answered = self._challenged_wrongly if is_forged else partial(self._challenged, user)
            self._say(SaslAuthenticateRequest(auth_bytes=f"n,,{first_of(user)}".encode()), 1, answered)
            return
        token = self._way.message(self.gateway.tokens, self.random, self.address, user, is_forged=is_forged)
        self.may_be_refused = self.may_be_refused or self._way.may_come_too_late
        is_bare = self._way.is_bare and not self.knows_login
        self._begin_login(SaslHandshakeRequest(mechanism=self._way.mechanism), 0 if is_bare else 1)
        if is_bare:
            self.out += len(token).to_bytes(4, "big") + token
            self.expected.append(Sent(0, self._bare_token_answered, is_bare=True))
            return
        self._say(SaslAuthenticateRequest(auth_bytes=token), 1, self._authenticated)
        if right and not self.knows_login and not self.may_be_refused:  # what follows is answered after the login
            self.is_logging_in, self.knows_login = False, True

    def _begin_login(self, handshake: SaslHandshakeRequest, version: int) -> None:
        begun = self._say(handshake, version)
        self._failing_login = begun if self._failing_login is None else self._failing_login

    def _challenged(self, user: str, answer: bytes) -> None:
        response = codec.decode_response(SaslAuthenticateResponse, 1, memoryview(answer))
        if response.error_code:  # it was too early to log in again
            self.may_be_refused, self.is_logging_in, self.awaits_login = True, False, False
            self._failing_login = None
        elif self.may_speak:
            token = proof(user, bytes(response.auth_bytes).decode())
            self._say(SaslAuthenticateRequest(auth_bytes=token), 1, self._authenticated)

    def _challenged_wrongly(self, answer: bytes) -> None:
        if self.may_speak:
            self._say(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p="), 1)

    def _authenticated(self, answer: bytes) -> None:
        response = codec.decode_response(SaslAuthenticateResponse, 1, memoryview(answer))
        if response.auth_bytes.startswith(b"{"):  # OAUTHBEARER says why a token is wrong
            self.may_be_refused = True
            if self.may_speak:
                self._say(SaslAuthenticateRequest(auth_bytes=oauth_bearer.ACKNOWLEDGEMENT), 1, self._authenticated)
            return
        self.is_logging_in = self.awaits_login = False
        if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            self._failing_login = None
        if response.error_code:
            self.may_be_refused = True
            return
        self.knows_login = True
        self.gateway.check_lifetime(self.address, response.session_lifetime_ms)
        self.check_nothing_was_served_early()

    def _bare_token_answered(self, answer: bytes) -> None:
        if answer:  # the JSON of OAUTHBEARER's failures
            self.may_be_refused = True
            return
        self.is_logging_in = self.awaits_login = False
        self._failing_login = None
        self.knows_login = True

    def check_nothing_was_served_early(self) -> None:
        served = {(self.address, each) for each in self.too_early} & self.gateway.begun.keys()
        assert not served, f"served before the login: {served}"

    def say_nonsense(self) -> None:
        if not self.may_speak:
            return
        self.may_be_refused = self.is_doomed = True
        self.out += self.random.choice(
            [
                (1 << 30).to_bytes(4, "big"), b"\xff\xff\xff\xff", bytes(4), bytes(8),
                b"\0\0\0\x0a\x03\xe8\0\0\0\0\0\1\xff\xff", b"\0\0\0\x0a\0\3\0\x63\0\0\0\1\xff\xff",
                (12).to_bytes(4, "big") + b"\0\x03\0\x09\0\0\0\1\0\1c\0", frame_of("JoinGroup")[:8] + b"\xff" * 100,
            ]
        )  # fmt: skip

    def say_a_part(self) -> None:
        if self.may_speak:
            self.is_doomed = True  # the rest never comes
            self.may_be_refused = True  # before the login, it is too large
            self.out += (1_000_000).to_bytes(4, "big") + bytes(self.random.choice([0, 100, 700_000]))

    # The socket

    @property
    def unsent(self) -> bool:
        return bool(self.out) or self.end.unsent

    def flush(self, most: int = 1 << 30) -> None:
        if self.left:
            return
        try:
            del self.out[: self.end.send(bytes(self.out), most)]
        except OSError:
            self.out.clear()
            return
        if self.half_closed and not self.unsent:
            self.end.finish_sending()

    def half_close(self) -> None:
        self.half_closed = True

    def leave(self) -> None:
        if not self.left:
            self.left = True
            self.end.close()

    def receive(self) -> None:
        while not (self.left or self.ended):
            try:
                data = self.end.receive()
            except BlockingIOError:
                break
            self.ended = not data
            self._in += data
        while len(self._in) >= 4 and len(self._in) - 4 >= (size := int.from_bytes(self._in[:4], "big")):
            frame = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        assert self.expected, f"answer {correlation_id} to nothing"
        sent = self.expected.popleft()
        is_next = sent.is_bare or sent.correlation_id == correlation_id
        assert is_next, f"answer {correlation_id} instead of {sent.correlation_id}"
        if sent.answered is not None:
            sent.answered(frame)

    # What must be true

    def check_at_the_end(self) -> None:
        """It has read everything, and nothing can happen any more."""
        if self.left:
            return
        self.check_nothing_was_served_early()
        connection = self.gateway.connections.get(self.address)
        if connection is None:  # TLS has not come to an end
            assert self.ended, "a handshake has no end"
            return
        reason = connection.ended
        assert reason != "internal error"
        if not self.ended:
            assert not self.expected or self.unsent, f"never answered: {self.expected}"
            assert not self.half_closed or self.unsent, "its connection stays open"
            return
        if reason in {"malformed request", "unsupported request", "request before login", "authentication failed"}:
            assert self.may_be_refused, reason
        if reason == "authentication failed" and self._failing_login is not None:
            later = [each for each in self.gateway.begun if each[0] == self.address and each[1] > self._failing_login]
            assert not later, f"served after a wrong login: {later}"
        if reason == "session expired":
            assert self.gateway.may_expire(self.address) and self.logs_in
        if reason in WITH_ANSWERS and not connection.aborted:
            begun: set[Request] = {(self.address, each.correlation_id) for each in self.expected}
            assert not begun & self.gateway.begun.keys(), f"begun, and not answered: {begun}, {reason}"
            if reason in {"end of stream", None}:
                assert not self.expected, f"not answered before the end of the stream: {self.expected}"
