"""The SASL mechanisms: they turn a client's tokens into its identity. Each login has its own exchange."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from gateway.login.credentials import ScramCredentials
from gateway.login.password_checks import PasswordChecks
from gateway.login.token_types import TokenClaims, Tokens
from gateway.requests.context import MAX_NAME_BYTES
from gateway.security.address_quotas import Site
from protocol.sasl import oauth_bearer, plain
from protocol.sasl.failure import LoginFailed
from protocol.sasl.scram import ScramCredential, ScramMechanism, ScramServer, credential_of

TOKEN_PREFIX = "token:"
"""Prefix of a PLAIN password that is a token."""
CLUSTER_EXTENSION = "logicalCluster"
"""The OAUTHBEARER extension in which a client names its cluster."""
NONCE_BYTES = 24


class Identity(NamedTuple):
    """The user that has logged in."""

    name: str
    expires_s: float | None = None
    """When the user's token expires, in seconds since 1970. None if it never does, or if there is no token."""
    cluster: str | None = None
    """`tenant/namespace` that the client or its token names, or in which the user was created."""
    is_own_user: bool = False
    """The user was created in this cluster, and can use no other."""


class Step(NamedTuple):
    """The server's answer to a token."""

    token: bytes
    identity: Identity | None = None
    """None until the login has succeeded."""


class SoughtUser(NamedTuple):
    """What a name logs in with."""

    mechanism: ScramMechanism
    credential: ScramCredential
    cluster: str | None = None
    """`tenant/namespace` of the cluster in which the user was created; None for other users."""
    missing: str | None = None
    """Why nobody can log in with the name, for the log; then no password matches the credential."""

    def identity(self, name: str) -> Identity:
        return Identity(name, cluster=self.cluster, is_own_user=self.cluster is not None)


class Users(Protocol):
    """The users of one connection."""

    async def find(self, user: str, mechanism: ScramMechanism | None) -> SoughtUser:
        """`mechanism` is None for any one that the user has a password for."""


async def _check_unchanged(users: Users, user: str, mechanism: ScramMechanism | None, sought: SoughtUser) -> None:
    """The user's cluster may have been deleted meanwhile, and made anew with other users. Raises LoginFailed."""
    if await users.find(user, mechanism) != sought:
        raise LoginFailed("the user was changed while it logged in", plain.WRONG if mechanism is None else None)


class Exchange(Protocol):
    async def respond(self, token: bytes) -> Step:
        """Raises LoginFailed."""


class Mechanisms:
    """The parts that all logins share."""

    def __init__(
        self, configured: ScramCredentials, tokens: Tokens | None, own: ScramCredentials | None = None
    ) -> None:
        """`configured` has the users of the configuration, `own` those of the fleet's own cluster."""
        self.configured = configured
        self.own = own
        self.tokens = tokens
        self.secret = os.urandom(32)
        """What is shown of unknown users is derived from it. A gateway sets that of its fleet."""
        self.checks = PasswordChecks()

    def exchange(self, mechanism: str, users: Users, site: Site) -> Exchange:
        """`mechanism` is one that can be configured; `site` is the client's."""
        return _EXCHANGES[mechanism](self, users, site)

    def close(self) -> None:
        self.checks.close()


class PlainExchange:
    def __init__(self, shared: Mechanisms, users: Users, site: Site) -> None:
        self._shared = shared
        self._users = users
        self._site = site

    async def respond(self, token: bytes) -> Step:
        message = plain.parse_plain(token, MAX_NAME_BYTES)
        if message.password.startswith(TOKEN_PREFIX) and self._shared.tokens is not None:
            identity = await self._by_token(self._shared.tokens, message)
        else:
            identity = await self._by_password(message)
        if message.authorization_id not in {"", message.user, identity.name}:
            raise LoginFailed("authorization id of another user", plain.FOREIGN_ID)
        return Step(b"", identity)

    async def _by_token(self, tokens: Tokens, message: plain.PlainMessage) -> Identity:
        try:
            claims = await tokens.verify(message.password.removeprefix(TOKEN_PREFIX))
        except LoginFailed as failed:
            raise LoginFailed(str(failed), plain.WRONG) from None
        cluster = message.user if message.user != claims.role and "/" in message.user else None
        if message.user not in {"", claims.role, cluster}:
            raise LoginFailed("user name differs from the token's role", plain.WRONG)
        return _identity(claims, cluster, plain.WRONG)

    async def _by_password(self, message: plain.PlainMessage) -> Identity:
        for field, value in (("username", message.user), ("password", message.password)):
            if not value:
                text = f"Authentication failed: {field} not specified"
                raise LoginFailed(text, text)
        sought = await self._users.find(message.user, None)
        salt, iterations = sought.credential.salt, sought.credential.iterations
        check = partial(credential_of, sought.mechanism, message.password, salt, iterations)
        given = await self._shared.checks.run(self._site, check)  # takes as long for an unknown user
        is_right = secrets.compare_digest(given.stored_key, sought.credential.stored_key)
        if sought.missing is not None or not is_right:
            raise LoginFailed(sought.missing or "wrong password", plain.WRONG)
        await _check_unchanged(self._users, message.user, None, sought)
        return sought.identity(message.user)


class ScramExchange:
    def __init__(self, users: Users, mechanism: ScramMechanism) -> None:
        self._users = users
        self._mechanism = mechanism
        self._server = ScramServer(mechanism, secrets.token_urlsafe(NONCE_BYTES))
        self._user = ""
        self._sought: SoughtUser | None = None

    async def respond(self, token: bytes) -> Step:
        if self._sought is None:
            self._user = self._server.first(token)
            self._sought = await self._users.find(self._user, self._mechanism)
            return Step(self._server.challenge(self._sought.credential))
        if self._sought.missing is not None:
            raise LoginFailed(self._sought.missing)
        answer = self._server.final(token)
        await _check_unchanged(self._users, self._user, self._mechanism, self._sought)
        return Step(answer, self._sought.identity(self._user))


class BearerExchange:
    def __init__(self, shared: Mechanisms) -> None:
        assert shared.tokens is not None  # without tokens, the configuration is refused
        self._tokens = shared.tokens
        self._failed: str | None = None

    async def respond(self, token: bytes) -> Step:
        if self._failed is not None:  # Kafka would accept another token; here each wrong token costs a connection
            acknowledged = token == oauth_bearer.ACKNOWLEDGEMENT
            raise LoginFailed(self._failed, oauth_bearer.failure("invalid_token").decode() if acknowledged else None)
        message = oauth_bearer.parse_bearer(token)
        try:
            claims = await self._tokens.verify(message.token)
        except LoginFailed as failed:
            self._failed = str(failed)
            return Step(oauth_bearer.failure("invalid_token"))
        if message.authorization_id not in {"", claims.role}:
            raise LoginFailed(
                "authorization id of another user",
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is "
                f"different from the token's principal name ({claims.role})",
            )
        return Step(b"", _identity(claims, message.extensions.get(CLUSTER_EXTENSION)))


def _identity(claims: TokenClaims, named: str | None, answer: str | None = None) -> Identity:
    """`named` is the cluster that the client names in addition to its token. Raises LoginFailed."""
    if named is not None and claims.cluster not in {None, named}:
        raise LoginFailed("cluster differs from the token's", answer)
    return Identity(claims.role, claims.expires_s, named or claims.cluster)


_EXCHANGES: dict[str, Callable[[Mechanisms, Users, Site], Exchange]] = {
    plain.NAME: PlainExchange,
    oauth_bearer.NAME: lambda shared, *_: BearerExchange(shared),
    ScramMechanism.SCRAM_SHA_256.value: lambda _, users, __: ScramExchange(users, ScramMechanism.SCRAM_SHA_256),
    ScramMechanism.SCRAM_SHA_512.value: lambda _, users, __: ScramExchange(users, ScramMechanism.SCRAM_SHA_512),
}
