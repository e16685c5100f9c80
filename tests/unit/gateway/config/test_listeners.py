"""Listeners that are refused at start: those that would expose secrets, or accept unknown clients."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from gateway.app import _advertised
from gateway.config.gateway_config import Config
from gateway.config.listeners import AddressSection
from gateway.config.security import TokensSection

TLS = {"certificate": "c.pem", "key": "k.pem"}
MUTUAL = TLS | {"authorities": "a.pem"}
TOKENS = {"tokens": {"secret_key_file": "secret"}}


def config_of(listener: dict[str, Any], **sections: Any) -> Config:
    return Config.model_validate({"kafka": {"listeners": [{"name": "x", **listener}]}, **sections})


@pytest.mark.parametrize(
    "listener",
    [
        {"protocol": "SSL", "tls": TLS},
        {"protocol": "SSL", "tls": MUTUAL, "client_auth": "required", "principal_rules": "RULE:^CN=(.*)$/$1/L,DEFAULT"},
        {"protocol": "SSL", "proxy_protocol": True, "client_auth": "required"},
        {"protocol": "SASL_SSL", "tls": TLS, "mechanisms": ["PLAIN", "OAUTHBEARER"], "host": "0.0.0.0"},
        {"protocol": "SASL_SSL", "proxy_protocol": True, "mechanisms": ["PLAIN"], "host": "0.0.0.0"},
        {"protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "host": "0.0.0.0"},
        {"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"]},
        {"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"], "host": "::1"},
        {"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"], "host": "0.0.0.0", "proxy_protocol": True},
    ],
)
def test_listeners(listener: dict[str, Any]) -> None:
    config_of(listener, security=TOKENS)


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ({"protocol": "TLS"}, "Input should be"),
        ({"protocol": "SSL"}, "needs tls"),
        ({"protocol": "PLAINTEXT", "tls": TLS}, "no effect"),
        ({"protocol": "SSL", "tls": TLS, "mechanisms": ["PLAIN"]}, "mechanisms are required for"),
        ({"protocol": "SASL_SSL", "tls": TLS}, "mechanisms are required for"),
        ({"protocol": "SASL_SSL", "tls": TLS, "mechanisms": ["GSSAPI"]}, "Input should be"),
        ({"protocol": "SSL", "tls": TLS, "client_auth": "required"}, "authorities"),
        ({"protocol": "PLAINTEXT", "client_auth": "required"}, "no effect"),
        ({"protocol": "SSL", "tls": TLS, "principal_rules": "RULE:x"}, "principal_rules"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"], "host": "0.0.0.0"}, "PLAIN without TLS"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"], "host": "gateway"}, "PLAIN without TLS"),
        (
            {"protocol": "SASL_PLAINTEXT", "mechanisms": ["OAUTHBEARER", "PLAIN"], "host": "10.0.0.1"},
            "OAUTHBEARER, PLAIN without TLS",
        ),
    ],
)  # fmt: skip
def test_listeners_that_are_refused(listener: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        config_of(listener, security=TOKENS)


@pytest.mark.parametrize(
    ("address", "warnings"),
    [
        ({"host": "0.0.0.0"}, 1),
        ({"host": "::"}, 1),
        ({"host": "10.0.0.1", "advertised_host": "0.0.0.0"}, 1),
        ({"host": "0.0.0.0", "advertised_host": "gateway"}, 0),
        ({"host": "10.0.0.1"}, 0),
        ({"host": "gateway"}, 0),
    ],
)
def test_an_address_by_which_clients_reach_themselves(address: dict[str, str], warnings: int) -> None:
    with capture_logs() as logs:
        _advertised(AddressSection.model_validate(address), 9092)
    assert sum("advertised_host" in each["event"] for each in logs) == warnings


def test_tokens_need_keys() -> None:
    """CVE-2026-33557: without keys, every client could sign its own token."""
    with pytest.raises(ValidationError, match=r"security\.tokens"):
        config_of({"protocol": "SASL_SSL", "tls": TLS, "mechanisms": ["OAUTHBEARER"]})
    for keys in ({}, {"jwks_url": "ftp://x"}, {"jwks_file": "a", "jwks_url": "https://x"}):
        with pytest.raises(ValidationError):
            TokensSection.model_validate(keys)


def test_forwarding_needs_tls_when_clients_log_in() -> None:
    login = {"protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-256"]}
    open_to_all: dict[str, Any] = {"forwarding": {"host": "0.0.0.0"}}
    inside: dict[str, Any] = {"forwarding": {}}
    secured = {"forwarding": {"host": "0.0.0.0", "tls": MUTUAL, "peer_names": ["CN=gateway"]}}
    config_of({}, fleet=open_to_all)
    config_of(login, fleet=inside)
    config_of(login, fleet=secured)
    with pytest.raises(ValidationError, match="needs tls"):
        config_of(login, fleet=open_to_all)
    for forwarding in ({"tls": MUTUAL}, {"peer_names": ["CN=x"]}, {"tls": TLS, "peer_names": ["CN=x"]}):
        with pytest.raises(ValidationError):
            config_of({}, fleet={"forwarding": forwarding})


def test_passwords_are_not_shown() -> None:
    config = config_of({}, security={"users": {"alice": "canary"}})
    assert "canary" not in repr(config) and "canary" not in str(config.model_dump())
    with pytest.raises(ValidationError) as refused:
        config_of({}, security={"users": {"alice": 5}})
    assert "alice" in str(refused.value)
