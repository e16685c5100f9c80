"""What can be told of a listener: where it is, what clients speak there, and how they log in."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator, model_validator

from protocol.sasl import oauth_bearer, plain
from protocol.x509.principal_rules import MalformedRule, parse_rules

Networks = tuple[Annotated[IPv4Network, Strict(False)] | Annotated[IPv6Network, Strict(False)], ...]
"""TOML has them as texts."""
LOOPBACK: Networks = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
NAME = "[A-Za-z0-9_=:-][A-Za-z0-9_=:.-]*"
"""Of a tenant or a namespace in Pulsar; none of a dot at the start, because names become parts of paths."""

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TELLING_SECRETS = frozenset({plain.NAME, oauth_bearer.NAME})
"""Who listens on the wire could log in himself."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class AddressSection(Section):
    host: str = "127.0.0.1"
    """The address on which the gateway listens. 0.0.0.0 is every address of the machine."""
    port: int = Field(default=9092, ge=0, le=65_535)
    """The port on which it listens."""
    advertised_host: str | None = None
    """The address to which clients are sent. By default `host`."""
    advertised_port: int | None = Field(default=None, ge=1, le=65_535)
    """The port to which clients are sent. By default `port`."""


class TlsSection(Section):
    """Certificates, as PEM files. They are read again when they change; files that cannot be used change nothing."""

    certificate: Path = Field(strict=False)
    """The gateway's certificate, and those between it and its authority."""
    key: Path = Field(strict=False)
    """Its private key, without a password."""
    authorities: Path | None = Field(default=None, strict=False)
    """The authorities that sign certificates of clients."""


class ListenerSection(AddressSection):
    """One address where clients connect."""

    protocol: SecurityProtocol = "PLAINTEXT"
    """Kafka's name for what clients speak: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    mechanisms: tuple[Mechanism, ...] = Field(default=(), strict=False)
    """How clients log in with SASL: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`."""
    tls: TlsSection | None = None
    """`certificate`, `key` and `authorities`: PEM files, read again when they change. Without it, `SSL` and `SASL_SSL`
    need `proxy_protocol`: a load balancer ends TLS, and says so in its PROXY header (v2)."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Kafka's `ssl.client.auth`: whether clients are asked for a certificate."""
    principal_rules: str = "DEFAULT"
    """Kafka's `ssl.principal.mapping.rules`: how the name in a client's certificate becomes that of its principal."""
    proxy_protocol: bool = False
    """Every connection begins with a PROXY header (v1 or v2), by which a load balancer names the client."""
    trusted_proxies: Networks = Field(default=LOOPBACK, strict=False)
    """Networks or addresses from which PROXY headers are accepted. Other connections are closed."""
    single_address: bool = False
    """The advertised address is that of all gateways. Clients see one broker; a gateway forwards requests for
    partitions that another one leads."""
    cluster: str | None = Field(default=None, pattern=f"^{NAME}/{NAME}$")
    """The namespace (`tenant/namespace`) whose cluster is served here, one of `[[kafka.clusters]]`. By default it is
    the one of `[pulsar]`, or the one that clients choose: by its host name, or when they log in."""

    @property
    def speaks_tls(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def speaks_sasl(self) -> bool:
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def authenticates(self) -> bool:
        """Clients say who they are."""
        return self.speaks_sasl or self.client_auth != "none"

    @property
    def may_choose_by_host(self) -> bool:
        """Clients name a cluster by its host name (SNI), and find all gateways at it."""
        return self.speaks_tls and self.single_address and self.cluster is None

    @field_validator("principal_rules")
    @classmethod
    def _check_rules(cls, rules: str) -> str:
        try:
            parse_rules(rules)
        except MalformedRule as error:
            raise ValueError(str(error)) from None
        return rules

    @model_validator(mode="after")
    def _agree_on_security(self) -> ListenerSection:
        if self.speaks_sasl != bool(self.mechanisms):
            raise ValueError("mechanisms are for SASL_PLAINTEXT and SASL_SSL, and these need some")
        if self.tls is not None and not self.speaks_tls:
            raise ValueError(f"tls is of no use with {self.protocol}")
        if self.speaks_tls and self.tls is None and not self.proxy_protocol:
            raise ValueError(f"{self.protocol} needs tls, or a load balancer that ends it (proxy_protocol)")
        if self.client_auth != "none":
            if not self.speaks_tls:
                raise ValueError(f"client_auth is of no use with {self.protocol}")
            if self.tls is not None and self.tls.authorities is None:
                raise ValueError("client_auth needs tls.authorities, which sign the certificates of clients")
        exposed = TELLING_SECRETS & {*self.mechanisms} if self.protocol == "SASL_PLAINTEXT" else frozenset()
        if exposed and not self.proxy_protocol and not is_loopback(self.host):
            raise ValueError(f"{', '.join(sorted(exposed))} without TLS shows passwords and tokens to the network")
        return self


class NamedListenerSection(ListenerSection):
    """A listener besides that of `[kafka]`; there may be several."""

    name: str = Field(min_length=1)
    """The same in all gateways. Clients of a listener are sent to the listener of the same name of other gateways."""


def is_loopback(host: str) -> bool:
    """Who listens there is reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
