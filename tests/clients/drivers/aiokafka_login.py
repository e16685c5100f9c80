"""Login settings of aiokafka."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def server_settings(
    bootstrap: str,
    security: str,
    mechanism: str | None,
    user: str,
    password: str,
    token: str | None,
    authority: str | None,
    certificate: str | None,
    key: str | None,
    **_: Any,
) -> dict[str, Any]:
    """Settings from the arguments of log_in."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": security}
    if authority:
        settings["ssl_context"] = context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    if mechanism:
        settings["sasl_mechanism"] = mechanism
    if token:
        return settings | {"sasl_oauth_token_provider": Token(token)}
    return settings | ({"sasl_plain_username": user, "sasl_plain_password": password} if mechanism else {})
