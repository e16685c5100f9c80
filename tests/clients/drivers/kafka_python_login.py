"""Login settings of kafka-python."""

from __future__ import annotations

from typing import Any

try:
    from kafka.net.sasl.oauth import AbstractTokenProvider
except ImportError:
    from kafka.oauth.abstract import AbstractTokenProvider


class Token(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
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
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": security,
        "ssl_cafile": authority,
        "ssl_certfile": certificate,
        "ssl_keyfile": key,
        **({"sasl_mechanism": mechanism} if mechanism else {}),
        **({"sasl_oauth_token_provider": Token(token)} if token else {}),
        **({"sasl_plain_username": user, "sasl_plain_password": password} if mechanism and not token else {}),
    }
