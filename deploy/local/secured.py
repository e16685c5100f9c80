"""What a secured system needs on one machine: an authority, a key that signs Pulsar's tokens, and files for clients.

All of it is created once, and kept in a folder.
"""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

import jwt

from deploy.local.certificates import Authority, Issued, write_secret

KEY_BYTES = 32
BROKER, GATEWAY, DEVELOPER = "broker", "gateway", "developer"
"""Roles of Pulsar, and the user name of the developer, which is known to the gateway only."""
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'


class LocalSecurity:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._authority = Authority(self._folder)
        self.key_file = self._folder / "token-secret.key"
        """Pulsar's `tokenSecretKey`."""
        if not self.key_file.exists():
            write_secret(self.key_file, secrets.token_bytes(KEY_BYTES))
        self._key = self.key_file.read_bytes()

    @property
    def authority(self) -> Path:
        """The certificate to trust."""
        return self._authority.certificate

    def token(self, role: str) -> str:
        """A token as `pulsar tokens create` issues it. It does not expire."""
        return jwt.encode({"sub": role}, self._key, algorithm="HS256")

    @property
    def pulsar_settings(self) -> dict[str, str]:
        """Settings of a broker that requires tokens and checks permissions."""
        return {
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": "data:;base64," + base64.b64encode(self._key).decode(),
            "authorizationEnabled": "true",
            "superUserRoles": f"{BROKER},{GATEWAY}",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.token(BROKER)}",
        }

    def server_certificate(self, host: str) -> Issued:
        """A new certificate for each start."""
        return self._authority.issue("kafka-gateway", hosts=[*{host, "127.0.0.1", "localhost"}])

    def write_clients(self, bootstrap: str) -> str:
        """Write configuration files for clients, and return how to use them."""
        password = f"token:{self.token(DEVELOPER)}"
        trusted = self.authority
        common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        java = common | {
            "sasl.jaas.config": _JAAS.format(DEVELOPER, password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
        }
        librdkafka = {"bootstrap.servers": bootstrap, "ssl.ca.location": str(trusted)} | common
        librdkafka |= {"sasl.username": DEVELOPER, "sasl.password": password}
        spark = {f"kafka.{key}": value for key, value in ({"bootstrap.servers": bootstrap} | java).items()}
        files = [self._folder / name for name in ("client.properties", "librdkafka.conf", "spark.json")]
        for file, text in zip(files, (_lines(java), _lines(librdkafka), json.dumps(spark, indent=2)), strict=True):
            write_secret(file, text.encode())
        return (
            f"  Java        kafka-topics.sh --bootstrap-server {bootstrap} --command-config {files[0]} --list\n"
            f"  librdkafka  kcat -F {files[1]} -L\n"
            f'  PySpark     spark.read.format("kafka").options(**json.load(open("{files[2]}")))'
        )


def _lines(properties: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())
