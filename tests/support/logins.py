"""Logins that Apache Kafka and the gateway both accept: the same listeners, users, tokens and certificates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt

from deploy.local.certificates import STORE_PASSWORD, Authority
from deploy.local.kafka import KafkaBroker
from deploy.local.process import free_port
from tests.support import jaas
from tests.support.gateway_process import HOST
from tests.support.tokens import Issuer

USER, PASSWORD = "alice", "alice-secret"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
LISTENERS = {"SASL": "SASL_PLAINTEXT", "SASL_TLS": "SASL_SSL", "MUTUAL": "SSL"}
"""Listener name → protocol. The last one requires client certificates."""
KEY_ID = "one"
TOKEN_LIFETIME_S = 3_600

Login = dict[str, Any]
"""A client's settings for a login; None for what it does not need."""


class Logins:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        self._server = self.authority.issue("server", hosts=[HOST, "localhost"])
        self._client = self.authority.issue("client")
        self._trust_store, self._key_store = self.authority.trust_store, self._client.key_store
        self._issuer = Issuer(folder / "tokens")
        self._key_set = folder / "keys.json"
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._issuer.key.public_key()))
        self._key_set.write_text(json.dumps({"keys": [key | {"kid": KEY_ID, "alg": "RS256", "use": "sig"}]}))

    def kafka(self, data_dir: Path, settings: dict[str, str]) -> KafkaBroker:
        """A broker with these logins, not started yet."""
        users = [f"{each}=[name={USER},password={PASSWORD}]" for each in SCRAM]
        options = [option for each in users for option in ("--add-scram", each)]
        return KafkaBroker(
            data_dir, settings=settings | self._kafka_settings(), listeners=LISTENERS, format_options=options
        )

    def _kafka_settings(self) -> dict[str, str]:
        store = self._server.key.with_name("server-store.pem")
        store.write_bytes(self._server.key.read_bytes() + self._server.certificate.read_bytes())
        found = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.oauthbearer.jwks.endpoint.url": self._key_set.as_uri(),
        }
        for listener in ("sasl", "sasl_tls"):
            prefix = f"listener.name.{listener}"
            found |= {
                f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
                f"{prefix}.plain.sasl.jaas.config": jaas.plain_users({USER: PASSWORD}),
                f"{prefix}.oauthbearer.sasl.jaas.config": jaas.BEARER_SERVER,
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": jaas.BEARER_VALIDATOR,
                f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._key_set.as_uri(),
                **{f"{prefix}.{each.lower()}.sasl.jaas.config": jaas.SCRAM_SERVER for each in SCRAM},
            }
        return found

    def gateway_sections(self) -> dict[str, dict[str, Any]]:
        """Sections of a gateway's configuration, with ports that are free now."""
        tls = {"certificate": str(self._server.certificate), "key": str(self._server.key)}
        listeners = []
        for name, protocol in LISTENERS.items():
            listener: dict[str, Any] = {"name": name, "host": HOST, "port": free_port(), "protocol": protocol}
            if protocol.startswith("SASL"):
                listener["mechanisms"] = list(MECHANISMS)
            if protocol.endswith("SSL"):
                listener["tls"] = tls
            if protocol == "SSL":
                listener |= {"client_auth": "required", "tls": tls | {"authorities": str(self.authority.certificate)}}
            listeners.append(listener)
        security = {"users": {USER: PASSWORD}, "tokens": {"jwks_file": str(self._key_set)}}
        return {"kafka": {"host": HOST, "port": free_port(), "listeners": listeners}, "security": security}

    def login(self, listener: str, address: str, mechanism: str | None = None, **changes: Any) -> Login:
        """A client's settings for `address`, if the server has that listener."""
        bearer, tls = mechanism == "OAUTHBEARER", LISTENERS[listener].endswith("SSL")
        mutual = listener == "MUTUAL"
        return {
            "bootstrap": address,
            "security": LISTENERS[listener],
            "mechanism": mechanism,
            "user": USER,
            "password": PASSWORD,
            "token": self._token() if bearer else None,
            "authority": str(self.authority.certificate) if tls else None,
            "trust_store": str(self._trust_store) if tls else None,
            "certificate": str(self._client.certificate) if mutual else None,
            "key": str(self._client.key) if mutual else None,
            "key_store": str(self._key_store) if mutual else None,
            "store_password": STORE_PASSWORD,
            **changes,
        }

    def _token(self) -> str:
        """A token as Kafka requires it: with the key's id, times and a scope."""
        now = int(time.time())
        claims = {"sub": USER, "iat": now, "exp": now + TOKEN_LIFETIME_S, "scope": "kafka"}
        return jwt.encode(claims, self._issuer.key, algorithm="RS256", headers={"kid": KEY_ID})


def forged(token: str) -> str:
    """The token with an invalid signature."""
    return token.rpartition(".")[0] + "." + "A" * 342
