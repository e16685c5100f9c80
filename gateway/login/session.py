"""The SASL login of one connection, before its requests are handled: Kafka's SaslServerAuthenticator.

`_TAKEN` lists the requests that each state accepts. Any other request closes the connection, without an answer where
Kafka sends none. After SaslHandshake v0, a client sends bare tokens instead of requests.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from gateway.config.security import ANONYMOUS_NAME
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.handlers.cluster.api_versions import UnknownVersion
from gateway.login.audit import LoginAudit
from gateway.login.exchanges import Exchange, Identity, Mechanisms
from gateway.login.failed_logins import FAILURE_DELAY_S, FailedLogins
from gateway.login.users import UsersHere
from gateway.requests.call import Call, asks
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import MAX_NAME_BYTES, Principal, RequestContext
from gateway.security.address_quotas import site_of
from protocol.framing import LENGTH_BYTES
from protocol.kafka.api_key import ApiKey
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import MalformedRequest
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import ApiVersionsResponse
from protocol.kafka.messages.login import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.kafka.messages.message import Message
from protocol.sasl import plain
from protocol.sasl.failure import LoginFailed

MAX_FRAME_BYTES = 512 * 1024
"""Kafka's `sasl.server.max.receive.size`."""
LONGEST_SESSION_S = 100 * 365 * 24 * 3_600.0
"""Maximum lifetime of a session. Clients count it in nanoseconds, in 64 bits; some tokens expire later than that."""
REAUTH_PAUSE_S = 1.0
"""Minimum time between two logins of a client that has logged in."""


class _State(Enum):
    BEGINNING = auto()
    HANDSHAKE = auto()
    """ApiVersions was answered, which happens only once."""
    AUTHENTICATION = auto()
    BARE_TOKENS = auto()
    WRONG_MECHANISM = auto()
    """The client named another mechanism when it logged in again. Its next request closes the connection."""
    DONE = auto()


_TAKEN: dict[_State, frozenset[int]] = {
    _State.BEGINNING: frozenset({ApiKey.ApiVersions, ApiKey.SaslHandshake}),
    _State.HANDSHAKE: frozenset({ApiKey.SaslHandshake}),
    _State.AUTHENTICATION: frozenset({ApiKey.SaslAuthenticate}),
    _State.BARE_TOKENS: frozenset(),
    _State.WRONG_MECHANISM: frozenset(),
    _State.DONE: frozenset({ApiKey.SaslHandshake}),
}
"""By state: the requests that are accepted."""

_ILLEGAL_NOW: dict[int, Callable[..., Message]] = {
    ApiKey.ApiVersions: ApiVersionsResponse,
    ApiKey.SaslHandshake: SaslHandshakeResponse,
}
"""Requests that are not accepted while a token is expected, but get an answer."""


class LoginAnswer(NamedTuple):
    buffers: list[Buffer] = []
    ends: str | None = None
    """Why the connection closes after the answer."""
    principal: Principal | None = None
    """The client has logged in as this principal."""
    served: ServedCluster | None = None
    """The cluster that the client has logged in to."""


class Logins(NamedTuple):
    """The parts that the logins of one listener share."""

    mechanisms: Mechanisms
    offered: tuple[str, ...]
    max_reauth_ms: int
    audit: LoginAudit
    failures: FailedLogins
    """Shared by all listeners."""
    failure_delay_s: float = FAILURE_DELAY_S


class LoginSession:
    def __init__(self, logins: Logins, dispatcher: Dispatcher, context: RequestContext) -> None:
        self._logins = logins
        self._dispatcher = dispatcher
        self._context = context
        self._state = _State.BEGINNING
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._principal: Principal | None = None
        """Set when the client has logged in; it stays the same when the client logs in again."""
        self._served: ServedCluster | None = None
        """Set when the client has logged in; it stays the same when the client logs in again."""
        self._expires_s = math.inf
        self._begun_again_s = -math.inf

    def set_context(self, context: RequestContext) -> None:
        """Set the context: the listener depends on the host name that the client requested."""
        self._context = context

    def takes(self, frame: bytearray) -> bool:
        """True if the login answers the frame; False if the frame is a request of a client that has logged in."""
        if self._state is not _State.DONE:
            return True
        if self._expires_s == math.inf:
            return False
        return self._begins_again(frame) or time.monotonic() > self._expires_s

    def _begins_again(self, frame: bytearray) -> bool:
        """An earlier handshake is an ordinary request."""
        return _api_key(frame) == ApiKey.SaslHandshake and time.monotonic() >= self._begun_again_s + REAUTH_PAUSE_S

    async def answer(self, frame: bytearray) -> LoginAnswer:
        """Answer a frame for which `takes` is true, one frame at a time. Raises MalformedRequest."""
        if self._state is _State.DONE:
            if not self._begins_again(frame):
                return LoginAnswer(ends="session expired")
            self._begun_again_s = time.monotonic()
        if not 0 < len(frame) <= MAX_FRAME_BYTES:
            raise MalformedRequest("login request of an invalid size")
        if self._state is _State.BARE_TOKENS:
            return await self._take_bare_token(bytes(frame))
        api_key = _api_key(frame)
        if api_key not in _TAKEN[self._state]:
            return await self._refused(frame, api_key)
        call = self._dispatcher.begin(frame, self._context)
        if asks(call, SaslHandshakeRequest):
            return await self._answer_handshake(call)
        if asks(call, SaslAuthenticateRequest):
            return await self._authenticate(call)
        return self._answer_api_versions(call)

    def _answer_api_versions(self, call: Call) -> LoginAnswer:
        response = call.api.handle(call).response
        assert isinstance(response, ApiVersionsResponse)
        if not isinstance(call.request, UnknownVersion) and response.error_code == ErrorCode.NONE:
            self._state = _State.HANDSHAKE
        return LoginAnswer(self._encode(call, response))

    async def _answer_handshake(self, call: Call[SaslHandshakeRequest]) -> LoginAnswer:
        mechanism, offered = call.request.mechanism, [*self._logins.offered]
        if mechanism not in offered:
            self._logins.audit.failed(self._context, "", "unknown mechanism")
            await asyncio.sleep(self._logins.failure_delay_s)
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            return LoginAnswer(self._encode(call, response), "authentication failed")
        if self._principal is not None and mechanism != self._mechanism:
            self._state = _State.WRONG_MECHANISM
        else:
            await self._logins.failures.wait(self._context.client.ip)
            self._mechanism = mechanism
            users = UsersHere(self._logins.mechanisms, self._dispatcher.entrance, self._context.listener)
            self._exchange = self._logins.mechanisms.exchange(mechanism, users, site_of(self._context.client.ip))
            self._state = _State.AUTHENTICATION if call.version >= 1 else _State.BARE_TOKENS
        return LoginAnswer(self._encode(call, SaslHandshakeResponse(mechanisms=offered)))

    async def _authenticate(self, call: Call[SaslAuthenticateRequest]) -> LoginAnswer:
        try:
            token, done = await self._respond(call.request.auth_bytes)
        except LoginFailed as failed:
            text = failed.answer or self._invalid_credentials()
            await self._failed(failed)
            response = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
            return LoginAnswer(self._encode(call, response), "authentication failed")
        response = SaslAuthenticateResponse(auth_bytes=token)
        if done is not None:
            response.session_lifetime_ms = self._begin_session(done)
        return self._progressed(self._encode(call, response), done)

    async def _take_bare_token(self, token: bytes) -> LoginAnswer:
        try:
            answer, done = await self._respond(token)
        except LoginFailed as failed:
            await self._failed(failed)
            return LoginAnswer(ends="authentication failed")
        if done is not None:
            self._begin_session(done)
        sized = len(answer).to_bytes(LENGTH_BYTES, "big") + answer
        return self._progressed([sized], done)

    def _progressed(self, buffers: list[Buffer], done: Identity | None) -> LoginAnswer:
        if done is None:
            return LoginAnswer(buffers)
        return LoginAnswer(buffers, principal=self._principal, served=self._served)

    async def _respond(self, token: bytes) -> tuple[bytes, Identity | None]:
        """Raises LoginFailed."""
        assert self._exchange is not None
        answer, identity = await self._exchange.respond(token)
        if identity is not None:
            self._check_principal(Principal(name=identity.name))
            await self._enter_cluster(identity)
        return answer, identity

    def _check_principal(self, principal: Principal) -> None:
        """Raises LoginFailed."""
        if principal.name == ANONYMOUS_NAME:  # it would have the rights of clients that have not logged in
            raise LoginFailed("the name of clients without login", plain.WRONG if self._is_plain else None)
        if principal.name_bytes > MAX_NAME_BYTES:
            text = f"The name has {principal.name_bytes} bytes. The limit is {MAX_NAME_BYTES}."
            raise LoginFailed("name too long", f"Authentication failed: {text}")
        if self._principal not in {None, principal}:
            assert self._principal is not None
            text = f"Cannot change principals during re-authentication from User.{self._principal.name}: "
            raise LoginFailed("principal changed", f"{text}User.{principal.name}")

    async def _enter_cluster(self, identity: Identity) -> None:
        """Raises LoginFailed."""
        entrance, own = self._dispatcher.entrance, self._dispatcher.own
        try:
            if entrance is not None:
                principal, listener = Principal(name=identity.name), self._context.listener
                served = await entrance.enter(listener, principal, identity.cluster, is_own_user=identity.is_own_user)
            elif identity.cluster in {None, own.cluster.config.pulsar.full_namespace}:
                served = own
            else:
                raise ClusterRefused("cluster is not served")
        except ClusterRefused as refused:
            raise LoginFailed(str(refused), plain.WRONG if self._is_plain else "") from refused
        if self._served is not None and self._served is not served:
            raise LoginFailed("cluster changed")
        self._served = served

    @property
    def _is_plain(self) -> bool:
        return self._mechanism == plain.NAME

    def _begin_session(self, identity: Identity) -> int:
        """Return the session's lifetime in milliseconds; 0 if the session never ends."""
        bounds_ms = [self._logins.max_reauth_ms] if self._logins.max_reauth_ms else []
        if identity.expires_s is not None:
            left_s = min(identity.expires_s - time.time(), LONGEST_SESSION_S)
            bounds_ms.append(max(0, int(left_s * 1000)))
        lifetime_ms = min(bounds_ms, default=0)
        self._expires_s = time.monotonic() + lifetime_ms / 1000 if bounds_ms else math.inf
        again = self._principal is not None
        self._logins.audit.logged_in(self._context, self._mechanism, identity.name, again=again)
        self._principal = Principal(name=identity.name)
        self._state, self._exchange = _State.DONE, None
        return lifetime_ms

    async def _failed(self, failed: LoginFailed) -> None:
        self._logins.audit.failed(self._context, self._mechanism, str(failed))
        self._logins.failures.count(self._context.client.ip)
        await asyncio.sleep(self._logins.failure_delay_s)

    def _invalid_credentials(self) -> str:
        doing = "authentication" if self._principal is None else "re-authentication"
        return f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {self._mechanism}"

    async def _refused(self, frame: bytearray, api_key: int) -> LoginAnswer:
        """Refuse a request that the state does not accept. While a token is expected, ApiVersions and SaslHandshake get
        an answer with an error."""
        self._logins.audit.failed(self._context, self._mechanism, "request before login")
        buffers: list[Buffer] = []
        response = _ILLEGAL_NOW.get(api_key)
        if self._state is _State.AUTHENTICATION and response is not None:
            call = self._dispatcher.begin(frame, self._context)
            await asyncio.sleep(self._logins.failure_delay_s)
            buffers = self._encode(call, response(error_code=ErrorCode.ILLEGAL_SASL_STATE))
        return LoginAnswer(buffers, "request before login")

    def _encode(self, call: Call, response: Message) -> list[Buffer]:
        self._dispatcher.complete(call, response)
        return self._dispatcher.encode(call, response)


def _api_key(frame: bytearray) -> int:
    return int.from_bytes(frame[:2], "big")
