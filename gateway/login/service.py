"""The parts that logins need, created from the configuration: users, keys of tokens, threads for passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.config.gateway_config import Config
from gateway.config.security import TokensSection
from gateway.login.audit import LoginAudit
from gateway.login.credentials import ConfiguredUsers, ScramCredentials
from gateway.login.exchanges import Mechanisms
from gateway.login.failed_logins import FailedLogins
from gateway.login.session import Logins
from gateway.login.token_types import TokenKeys, Tokens
from gateway.observability.metrics import Metrics


class LoginService:
    def __init__(self, config: Config, mechanisms: Mechanisms, keys: TokenKeys | None, metrics: Metrics) -> None:
        self._mechanisms = mechanisms
        self._keys = keys
        self._users = config.security.users
        self._max_reauth_ms = config.security.max_reauth_ms
        self._audit = LoginAudit(metrics)
        self._failures = FailedLogins()

    @classmethod
    async def start(cls, config: Config, metrics: Metrics, own: ScramCredentials) -> LoginService:
        """`own` knows the users of the fleet's own cluster. Raises InvalidKey or OSError."""
        security = config.security
        keys, tokens = (None, None) if security.tokens is None else await _tokens(security.tokens)
        return cls(config, Mechanisms(ConfiguredUsers({}, b""), tokens, own), keys, metrics)

    async def prepare_users(self, secret: bytes) -> None:
        """Await this before clients may log in. With the fleet's `secret`, all gateways show the same of a name."""
        self._mechanisms.secret = secret
        self._mechanisms.configured = await asyncio.to_thread(ConfiguredUsers, self._users, secret)

    def of(self, mechanisms: Sequence[str]) -> Logins | None:
        """The logins of a listener; None without SASL."""
        if not mechanisms:
            return None
        return Logins(self._mechanisms, tuple(mechanisms), self._max_reauth_ms, self._audit, self._failures)

    async def close(self) -> None:
        self._mechanisms.close()
        if self._keys is not None:
            await self._keys.close()


async def _tokens(settings: TokensSection) -> tuple[TokenKeys, Tokens]:
    """Raises InvalidKey or OSError."""
    from gateway.login.key_sets import token_keys  # noqa: PLC0415  # see `tokens`
    from gateway.login.tokens import TokenVerifier  # noqa: PLC0415

    keys = await token_keys(settings)
    return keys, TokenVerifier(settings, keys)
