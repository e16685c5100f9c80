"""A login without a connection: requests and responses."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from pydantic import SecretStr

from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher, Entrance
from gateway.login import session
from gateway.login.audit import LoginAudit
from gateway.login.credentials import ConfiguredUsers
from gateway.login.exchanges import Mechanisms
from gateway.login.failed_logins import FailedLogins
from gateway.login.session import LoginAnswer, Logins, LoginSession
from gateway.login.tokens import TokenVerifier
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener
from tests.support.raw_client import decode_response, encode_request

USER, PASSWORD = "alice", "secret"
EVERY = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS = ConfiguredUsers({USER: SecretStr(PASSWORD), "bob": SecretStr("b")}, b"secret")


class Scene:
    def __init__(
        self,
        *,
        offered: tuple[str, ...] = EVERY,
        max_reauth_ms: int = 0,
        tokens: TokenVerifier | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        self.metrics = Metrics()
        self.entrance = entrance
        fleet = SimpleNamespace(epoch=0, transaction_version=0, incarnation="")
        cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=self.metrics, fleet=fleet))
        self.mechanisms = Mechanisms(USERS, tokens)
        self.logins = Logins(
            self.mechanisms, offered, max_reauth_ms, LoginAudit(self.metrics), FailedLogins(), failure_delay_s=0
        )
        dispatcher = Dispatcher(cluster, entrance=entrance)
        context = dispatcher.context(Client("192.0.2.7:5"), Listener("outside"))
        self.session = LoginSession(self.logins, dispatcher, context)
        self.last: LoginAnswer = LoginAnswer()

    async def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """The response; empty if the connection closes without one."""
        frame = bytearray(encode_request(api, version, fields))
        assert self.session.takes(frame)
        self.last = await asyncio.wait_for(self.session.answer(frame), 20)
        data = b"".join(map(bytes, self.last.buffers))
        return decode_response(api, version, data[4:])[1] if data else {}

    async def shake_hands(self, mechanism: str, version: int = 1) -> dict[str, Any]:
        return await self.ask("SaslHandshake", version, mechanism=mechanism)

    async def authenticate(self, token: bytes, version: int = 2) -> dict[str, Any]:
        return await self.ask("SaslAuthenticate", version, auth_bytes=token)

    async def log_in(self, user: str = USER, password: str = PASSWORD, version: int = 2) -> dict[str, Any]:
        """With PLAIN."""
        assert (await self.shake_hands("PLAIN"))["error_code"] == 0
        return await self.authenticate(f"\0{user}\0{password}".encode(), version)

    def is_for_login(self, api: str, version: int, **fields: Any) -> bool:
        return self.session.takes(bytearray(encode_request(api, version, fields)))

    def counted(self, mechanism: str, outcome: str) -> float:
        return cast(float, self.metrics.logins.labels(mechanism, outcome)._value.get())


def without_waiting(monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "REAUTH_PAUSE_S", 0.0)
