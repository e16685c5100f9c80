"""A gateway with a listener of each security protocol, and the settings of clients."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.local.certificates import STORE_PASSWORD, Authority
from deploy.local.process import free_port
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on
from tests.support import jaas
from tests.support.gateway_process import HOST
from tests.support.names import unique_topic
from tests.support.tokens import Issuer

USER, PASSWORD = "alice", "canary-secret-of-alice"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL_LISTENERS = {"sasl": "SASL_PLAINTEXT", "sasl_tls": "SASL_SSL"}
TLS_LISTENERS = {"tls": "SSL", "mutual": "SSL"}
"""`mutual` requires client certificates."""
TOKEN_LIFETIME_S = 3_600


class Secured:
    """The `gateway` is not started yet."""

    def __init__(
        self, pulsar: SecuredPulsar, folder: Path, *, max_reauth_ms: int = 3_600_000, **sections: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.authority = Authority(folder / "certificates")
        self.issuer = Issuer(folder / "tokens")
        self.server = self.authority.issue("gateway", hosts=[HOST, "localhost"])
        self.client = self.authority.issue("client", unit="tests")
        self.protocols = SASL_LISTENERS | TLS_LISTENERS
        self.ports = {name: free_port() for name in self.protocols}
        tls: dict[str, str] = {"certificate": str(self.server.certificate), "key": str(self.server.key)}
        listeners: list[dict[str, Any]] = []
        for name, protocol in self.protocols.items():
            listener: dict[str, Any] = {"name": name, "host": HOST, "port": self.ports[name], "protocol": protocol}
            if name in SASL_LISTENERS:
                listener["mechanisms"] = list(MECHANISMS)
            if protocol.endswith("SSL"):
                listener["tls"] = tls
            if name == "mutual":
                listener["tls"] = tls | {"authorities": str(self.authority.certificate)}
                listener |= {"client_auth": "required", "principal_rules": "RULE:^CN=(.*?),OU=tests$/$1/U"}
            listeners.append(listener)
        tokens = {"public_key_file": str(self.issuer.public_key_file)}
        self.gateway = gateway_on(
            # Gateways of other tests have no such listeners, so this one has a namespace of its own.
            pulsar, folder / "gateway", pulsar={"namespace": unique_topic("secured")},
            kafka={"host": HOST, "port": free_port(), "listeners": listeners},
            security={"users": {USER: PASSWORD}, "tokens": tokens, "max_reauth_ms": max_reauth_ms}, **sections,
        )  # fmt: skip

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def librdkafka(self, listener: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": self.address(listener), "security.protocol": self.protocols[listener].lower(),
        }  # fmt: skip
        if listener != "sasl":
            config["ssl.ca.location"] = str(self.authority.certificate)
        if listener == "mutual":
            config["ssl.certificate.location"] = str(self.client.certificate)
            config["ssl.key.location"] = str(self.client.key)
        if mechanism:
            config["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            config["oauth_cb"] = lambda _: (self.issuer.token(USER), time.time() + TOKEN_LIFETIME_S)
        elif mechanism:
            config |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return config | more

    def java(self, listener: str, mechanism: str = "", *, password: str = PASSWORD) -> Path:
        """A properties file. All versions of Java can read PKCS12."""
        properties = {"security.protocol": self.protocols[listener]}
        if listener != "sasl":
            properties |= _store("ssl.truststore", self.authority.trust_store)
        if listener == "mutual":
            properties |= _store("ssl.keystore", self.client.key_store) | {"ssl.key.password": STORE_PASSWORD}
        if mechanism:
            properties["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            token = self.folder / "token"
            token.write_text(self.issuer.token(USER, iat=int(time.time()), scope="kafka"))
            properties |= {
                "sasl.jaas.config": jaas.BEARER_CLIENT,
                "sasl.login.callback.handler.class": jaas.BEARER_LOGIN,
                "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            }
        elif mechanism:
            properties["sasl.jaas.config"] = jaas.jaas_config(mechanism, USER, password)
        file = self.folder / f"{listener}-{mechanism}-{password}.properties"
        write_properties(file, properties)
        return file


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _store(kind: str, file: Path) -> dict[str, str]:
    return {f"{kind}.location": str(file), f"{kind}.type": "PKCS12", f"{kind}.password": STORE_PASSWORD}
