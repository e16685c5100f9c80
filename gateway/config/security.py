"""The configuration of logins and of authorization: users, tokens, the authorizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.listeners import Section, is_loopback

ANONYMOUS_NAME = "ANONYMOUS"
"""Kafka's name for clients that have not logged in. Nobody can log in with it: rights and quotas are given to names."""


class TokensSection(Section):
    """Tokens of clients: Pulsar's own tokens, or those of an identity provider. Configure the keys that sign them."""

    public_key_file: Path | None = Field(default=None, strict=False)
    """Pulsar's `tokenPublicKey`: an RSA or EC key, PEM or DER. This file and the next two are read again when they
    change; if the new file is invalid, the old key stays in use."""
    secret_key_file: Path | None = Field(default=None, strict=False)
    """Pulsar's `tokenSecretKey`: the file contains the bytes of the key."""
    jwks_file: Path | None = Field(default=None, strict=False)
    """A file with a JSON Web Key Set."""
    jwks_url: str | None = Field(default=None, pattern="^https?://")
    """The URL of a JSON Web Key Set, with https unless it is on loopback. It is read again every few minutes, and when
    a token names a key that is not in the set."""
    role_claim: str = Field(default="sub", min_length=1)
    """Pulsar's `tokenAuthClaim`: the claim that names the principal."""
    cluster_claim: str | None = Field(default=None, min_length=1)
    """The claim that names the cluster (`tenant/namespace`) of a client. A client whose token has this claim can use no
    other cluster."""
    audience: str | None = None
    """Pulsar's `tokenAudience`: tokens must contain this audience in `aud`."""
    issuer: str | None = None
    """Tokens must contain this issuer in `iss`."""

    @model_validator(mode="after")
    def _have_keys(self) -> TokensSection:
        sources = (self.public_key_file, self.secret_key_file, self.jwks_file, self.jwks_url)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give one of public_key_file, secret_key_file, jwks_file and jwks_url")
        return self

    @field_validator("jwks_url")
    @classmethod
    def _is_not_forged(cls, url: str | None) -> str | None:
        if url is not None and url.startswith("http:") and not is_loopback(urlsplit(url).hostname or ""):
            raise ValueError("use https: keys that are fetched without TLS cannot be trusted")
        return url


class SecuritySection(Section):
    """How clients log in on listeners with SASL."""

    users: dict[Annotated[str, Field(min_length=1)], Annotated[SecretStr, Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """The names of users and their passwords, for PLAIN and SCRAM."""
    tokens: TokensSection | None = None
    """Which tokens are accepted, with OAUTHBEARER and as passwords of PLAIN."""
    max_reauth_ms: int = Field(default=3_600_000, ge=0)
    """Kafka's `connections.max.reauth.ms`: after this time a client has to log in again on its connection (KIP-368); a
    client that does not support this is disconnected. With 0 a client has to do so only when its token expires."""

    @field_validator("users")
    @classmethod
    def _can_log_in(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if ANONYMOUS_NAME in users:
            raise ValueError(f"{ANONYMOUS_NAME} is the name of clients that have not logged in")
        return users


class AuthorizationSection(Section):
    """Which operations clients may perform."""

    authorizer: Literal["none", "acl", "pulsar"] = "none"
    """`acl`: Kafka's ACLs, which you set with `kafka-acls.sh`. `pulsar`: a client has the permissions of the Pulsar
    role with its name, in the Pulsar namespace. `none`: everybody may perform every operation."""
    super_users: tuple[str, ...] = Field(default=(), strict=False)
    """Kafka's `super.users`, such as `User:admin`: these users may perform every operation."""
    allow_everyone_if_no_acl_found: bool = False
    """Kafka's `allow.everyone.if.no.acl.found`: everybody may use a resource without any ACL."""

    @model_validator(mode="after")
    def _names_have_types(self) -> AuthorizationSection:
        if any(":" not in user for user in self.super_users):
            raise ValueError("write super users as User:name")
        return self
