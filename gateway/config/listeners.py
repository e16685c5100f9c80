"""The configuration of a listener: its address, its protocol, and how clients log in."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator, model_validator

from protocol.sasl import oauth_bearer, plain
from protocol.x509.principal_rules import MalformedRule, parse_rules

Networks = tuple[Annotated[IPv4Network, Strict(False)] | Annotated[IPv6Network, Strict(False)], ...]
"""In TOML they are strings."""
LOOPBACK: Networks = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
NAME = "[A-Za-z0-9_=:-][A-Za-z0-9_=:.-]*"
"""The name of a tenant or a namespace in Pulsar, without a dot at the start, because names become parts of paths."""

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SECRETS_IN_CLEAR_TEXT = frozenset({plain.NAME, oauth_bearer.NAME})
"""Mechanisms that are unsafe without encryption: an eavesdropper could log in with what the client sends."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class AddressSection(Section):
    host: str = "127.0.0.1"
    """The address on which the gateway listens. 0.0.0.0 means all addresses of the machine."""
    port: int = Field(default=9092, ge=0, le=65_535)
    """The port on which the gateway listens."""
    advertised_host: str | None = None
    """The address that clients get from the gateway. By default `host`: set it if that means all addresses."""
    advertised_port: int | None = Field(default=None, ge=1, le=65_535)
    """The port that clients get from the gateway. By default `port`."""


class TlsSection(Section):
    """Certificates, as PEM files. They are read again when they change; if the new files are invalid, the old
    certificates stay in use."""

    certificate: Path = Field(strict=False)
    """The gateway's certificate, with the intermediate certificates."""
    key: Path = Field(strict=False)
    """The private key of the certificate, without a password."""
    authorities: Path | None = Field(default=None, strict=False)
    """The certificates of the authorities that sign client certificates."""


class ListenerSection(AddressSection):
    """An address to which clients connect."""

    protocol: SecurityProtocol = "PLAINTEXT"
    """Kafka's name of the protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    mechanisms: tuple[Mechanism, ...] = Field(default=(), strict=False)
    """The SASL mechanisms for clients: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`."""
    tls: TlsSection | None = None
    """`certificate`, `key` and `authorities`: PEM files, read again when they change. Without `tls`, `SSL` and
    `SASL_SSL` need `proxy_protocol`: a load balancer ends TLS, and says so in its PROXY header (v2)."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Kafka's `ssl.client.auth`: whether clients are requested or required to present a certificate."""
    principal_rules: str = "DEFAULT"
    """Kafka's `ssl.principal.mapping.rules`: how the name in a client certificate is mapped to the name of the
    principal."""
    proxy_protocol: bool = False
    """Every connection begins with a PROXY header (v1 or v2), in which a load balancer gives the client's address."""
    trusted_proxies: Networks = Field(default=LOOPBACK, strict=False)
    """Networks or addresses from which PROXY headers are accepted. Connections from other addresses are closed."""
    single_address: bool = False
    """The advertised address is the same for all gateways. Clients see one broker; a gateway forwards requests for
    partitions that another gateway leads."""
    cluster: str | None = Field(default=None, pattern=f"^{NAME}/{NAME}$")
    """The namespace (`tenant/namespace`) of the cluster that is served here, one of `[[kafka.clusters]]`. By default
    the cluster of `[pulsar]`, or the one that clients choose by host name or when they log in."""

    @property
    def speaks_tls(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def speaks_sasl(self) -> bool:
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def authenticates(self) -> bool:
        """Clients log in, or present certificates."""
        return self.speaks_sasl or self.client_auth != "none"

    @property
    def may_choose_by_host(self) -> bool:
        """Clients may choose a cluster by its host name (SNI), where they reach all gateways."""
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
            raise ValueError("mechanisms are required for SASL_PLAINTEXT and SASL_SSL, and allowed only there")
        if self.tls is not None and not self.speaks_tls:
            raise ValueError(f"tls has no effect with {self.protocol}")
        if self.speaks_tls and self.tls is None and not self.proxy_protocol:
            raise ValueError(f"{self.protocol} needs tls, or a load balancer that terminates it (proxy_protocol)")
        if self.client_auth != "none":
            if not self.speaks_tls:
                raise ValueError(f"client_auth has no effect with {self.protocol}")
            if self.tls is not None and self.tls.authorities is None:
                raise ValueError("client_auth needs tls.authorities, which sign the certificates of clients")
        exposed = SECRETS_IN_CLEAR_TEXT & {*self.mechanisms} if self.protocol == "SASL_PLAINTEXT" else frozenset()
        if exposed and not self.proxy_protocol and not is_loopback(self.host):
            raise ValueError(f"{', '.join(sorted(exposed))} without TLS sends passwords and tokens in clear text")
        return self


class NamedListenerSection(ListenerSection):
    """An additional listener besides that of `[kafka]`; there may be several."""

    name: str = Field(min_length=1)
    """Use the same name in all gateways: clients of this listener get the addresses of the other gateways' listeners
    with this name."""


def is_unspecified(host: str) -> bool:
    """Whether a listener on this host has all addresses of the machine. A client that connects to such an address
    reaches its own machine."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a listener on this host is reachable only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
