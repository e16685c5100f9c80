"""Settings for Pulsar: addresses, login, and limits."""

import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from gateway.backoff import Backoff

_TOKEN = re.compile(rb"[!-~]+")
"""What a header of HTTP can contain."""
JITTER = 0.2
"""The share by which pauses vary: gateways that lost the same broker do not all reconnect at the same time."""
_SERVICE_SCHEMES = ("pulsar://", "pulsar+ssl://")
DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


class PulsarSettings(BaseModel):
    """Settings of the Pulsar client and of the admin client."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    service_url: str = "pulsar://127.0.0.1:6650"
    """`pulsar://host:port[,host:port…]`, or `pulsar+ssl://…`."""
    admin_url: str = "http://127.0.0.1:8080"
    """`http://host:port[,host:port…]`, or `https://…`."""

    token: SecretStr | None = None
    """The token for the login. Set this or `token_file`."""
    token_file: Path | None = Field(default=None, strict=False)
    """A file with the token. The file is read at every login, so a renewed token is used."""
    tls_trust_certs: Path | None = Field(default=None, strict=False)
    """A PEM file with the certificates to trust."""
    tls_allow_insecure: bool = False
    """Accept any certificate. For tests only."""
    tls_verify_hostname: bool = True
    """Check that the certificate names the host."""

    connect_timeout_ms: int = Field(default=10_000, gt=0)
    """Timeout for opening a connection to a broker."""
    operation_timeout_ms: int = Field(default=30_000, gt=0)
    """Timeout for an operation (opening, closing, requests), including its retries."""
    request_timeout_ms: int = Field(default=10_000, gt=0)
    """Timeout for one answer of a broker."""
    keepalive_interval_ms: int = Field(default=5_000, gt=0)
    """A connection that is silent for this time is probed. It is closed if it is silent for the same time again."""
    backoff_initial_ms: int = Field(default=50, gt=0)
    """Pause before the first retry. It doubles with each retry."""
    backoff_max_ms: int = Field(default=2_000, gt=0)
    """The longest pause between retries."""
    max_lookup_redirects: int = Field(default=20, gt=0)
    """The maximum number of redirects in one lookup."""
    write_buffer_high_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    """A connection with more unsent bytes accepts no more writes."""
    max_admin_connections: int = Field(default=32, gt=0)
    """The maximum number of connections to the admin API."""
    max_admin_response_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    """The largest answer of the admin API that is accepted."""

    @field_validator("service_url")
    @classmethod
    def _check_service_url(cls, url: str) -> str:
        scheme, separator, hosts = url.partition("://")
        if scheme + separator not in _SERVICE_SCHEMES or not all(hosts.split(",")):
            raise ValueError("service_url must look like pulsar://host:port[,host:port] or pulsar+ssl://…")
        return url.rstrip("/")

    @field_validator("admin_url")
    @classmethod
    def _check_admin_url(cls, url: str) -> str:
        scheme, _, hosts = url.partition("://")
        if scheme not in {"http", "https"} or not all(hosts.split(",")):
            raise ValueError("admin_url must look like http://host:port[,host:port] or https://…")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise ValueError("give token or token_file, not both")
        if self.backoff_initial_ms > self.backoff_max_ms:
            raise ValueError("backoff_initial_ms is above backoff_max_ms")
        if self.request_timeout_ms > self.operation_timeout_ms:
            raise ValueError("request_timeout_ms is above operation_timeout_ms")
        return self

    def backoff(self, longest_ms: int | None = None) -> Backoff:
        """The pauses between attempts of one operation. ``longest_ms`` replaces ``backoff_max_ms``."""
        longest_ms = self.backoff_max_ms if longest_ms is None else longest_ms
        return Backoff(self.backoff_initial_ms / 1000, longest_ms / 1000, jitter=JITTER)

    def service_urls(self) -> list[str]:
        """Each address of service_url as a separate URL."""
        scheme, _, hosts = self.service_url.partition("://")
        return [f"{scheme}://{host}" for host in hosts.split(",")]

    def admin_urls(self) -> list[str]:
        """Each address of admin_url as a separate URL."""
        scheme, _, hosts = self.admin_url.partition("://")
        return [f"{scheme}://{host}" for host in hosts.split(",")]

    def read_token(self) -> str | None:
        """The token for the login, None without authentication. Reads a small file. Raises OSError, also if the file
        contains something else: it may be renewed just now."""
        if self.token_file is not None:
            token = self.token_file.read_bytes().strip()
            if not _TOKEN.fullmatch(token):
                raise OSError(f"{self.token_file} does not contain a token")
            return token.decode()
        return None if self.token is None else self.token.get_secret_value()
