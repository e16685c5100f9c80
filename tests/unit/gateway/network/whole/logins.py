"""How clients log in: with passwords and with tokens, by requests or by bare tokens, and as others than before."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import NamedTuple

from gateway.login.token_types import TokenClaims
from protocol.sasl import oauth_bearer, plain
from protocol.sasl.failure import LoginFailed
from protocol.sasl.scram import ScramMechanism
from tests.conformance.logins import bearer
from tests.unit.gateway.login.login_scene import PASSWORD, USER

SCRAM = ScramMechanism.SCRAM_SHA_256.value
OTHER = "bob"
PASSWORDS = {USER: PASSWORD, OTHER: "b"}


class WholeTokens:
    """Verifies tokens, sometimes only after the keys were read again."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._claims: dict[str, TokenClaims] = {}
        self.expires_s: dict[str, float] = {}
        """By client's address: when its last good token expires, if it does."""
        self._addresses: dict[str, str] = {}

    def issue(self, address: str, role: str, lifetime_s: float | None) -> str:
        token = f"token-{len(self._claims)}"
        expires_s = None if lifetime_s is None else time.time() + lifetime_s
        self._claims[token] = TokenClaims(role, expires_s)
        self._addresses[token] = address
        return token

    async def verify(self, token: str) -> TokenClaims:
        await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.4, 5]))
        claims = self._claims.get(token)
        if claims is None or (claims.expires_s is not None and claims.expires_s <= time.time()):
            raise LoginFailed("token: ExpiredSignatureError")
        self.expires_s.pop(self._addresses[token], None)
        if claims.expires_s is not None:
            self.expires_s[self._addresses[token]] = claims.expires_s
        return claims


class LogsInBy(NamedTuple):
    """A client's way to log in."""

    mechanism: str
    with_token: bool = False
    is_bare: bool = False
    """The first login is without the headers of requests (SaslHandshake v0)."""
    lifetimes_s: tuple[float | None, ...] = (None,)
    """Of tokens."""
    user: str = USER
    changes_user: bool = False
    """It may try to log in again as another user."""

    @property
    def may_come_too_late(self) -> bool:
        """The token may have expired before it is verified."""
        return self.with_token and self.lifetimes_s != (None,)

    def someone(self, random: Random) -> str:
        """Who it tries to be when it logs in again, and must not."""
        other = OTHER if self.user == USER else USER
        return other if self.changes_user and random.random() < 0.7 else self.user

    def message(self, tokens: WholeTokens, random: Random, address: str, user: str, *, is_forged: bool) -> bytes:
        """Of PLAIN and OAUTHBEARER."""
        if not self.with_token:
            return f"\0{user}\0{'wrong' if is_forged else PASSWORDS[user]}".encode()
        token = "forged" if is_forged else tokens.issue(address, user, random.choice(self.lifetimes_s))
        if self.mechanism == oauth_bearer.NAME:
            return bearer(token)
        return f"\0{random.choice(['', user])}\0token:{token}".encode()


def some_way(random: Random) -> LogsInBy:
    mechanism = random.choice([plain.NAME, SCRAM, *[oauth_bearer.NAME] * 3])
    with_token = mechanism == oauth_bearer.NAME or (mechanism == plain.NAME and random.random() < 0.4)
    lifetimes_s = random.choice([(None,), (0.3, 2.0), (1.5, 30.0), (30.0, None)])
    user = random.choice([USER, USER, OTHER])
    is_bare = mechanism != SCRAM and random.random() < 0.2
    return LogsInBy(mechanism, with_token, is_bare, lifetimes_s, user, changes_user=True)
