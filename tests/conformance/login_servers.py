"""Two servers with a listener where clients log in: the same users, and the keys of the same tokens.

What no ACL allows is denied to all but the super user.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from deploy.local.kafka import HOST, KafkaBroker
from deploy.local.process import free_port
from tests.conformance.acls import KAFKA_SETTINGS
from tests.conformance.conversation import Pair, Server
from tests.conformance.logins import MECHANISMS, REAUTH_MS, SCRAM, SUPER_USER, USERS
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, running
from tests.support import jaas
from tests.support.tokens import Issuer


@contextmanager
def servers_with_logins(pulsar: SecuredPulsar, issuer: Issuer, folder: Path) -> Iterator[Pair]:
    keys = _key_set(issuer, folder / "keys.json")
    run = uuid.uuid4().hex[:6]
    with _kafka(keys, folder / "kafka") as kafka, _gateway(pulsar, keys, folder / "gateway") as gateway:
        yield Pair(Server("kafka", kafka, f"c{run}k-"), Server("gateway", gateway, f"c{run}g-"), apply_table=True)


def _key_set(issuer: Issuer, file: Path) -> Path:
    row = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(issuer.key.public_key()))
    file.write_text(json.dumps({"keys": [row | {"kid": "one", "alg": "RS256", "use": "sig"}]}))
    return file


@contextmanager
def _kafka(key_set: Path, folder: Path) -> Iterator[str]:
    """The address of its listener."""
    prefix = "listener.name.sasl"
    settings = KAFKA_SETTINGS | {
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{SUPER_USER};User:ANONYMOUS",  # Kafka itself is anonymous to its controller
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": jaas.plain_users(USERS),
        f"{prefix}.oauthbearer.sasl.jaas.config": jaas.BEARER_SERVER,
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": jaas.BEARER_VALIDATOR,
        f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
        "sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
        **{f"{prefix}.{each.lower()}.sasl.jaas.config": jaas.SCRAM_SERVER for each in SCRAM},
        **{f"{prefix}.{each.lower()}.connections.max.reauth.ms": str(REAUTH_MS) for each in MECHANISMS},
    }
    broker = KafkaBroker(folder, settings=settings, listeners={"SASL": "SASL_PLAINTEXT"})
    with running(broker):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        changes: list[Any] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4_096), password.encode())
            for user, password in USERS.items()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(30)
        yield broker.address("SASL")


@contextmanager
def _gateway(pulsar: SecuredPulsar, key_set: Path, folder: Path) -> Iterator[str]:
    """The address of its listener."""
    port = free_port(HOST)
    listener = {
        "name": "sasl", "host": HOST, "port": port, "protocol": "SASL_PLAINTEXT", "mechanisms": MECHANISMS,
    }  # fmt: skip
    server = gateway_on(
        pulsar, folder,
        pulsar={"namespace": f"logins-{uuid.uuid4().hex[:6]}"},  # otherwise it would join the fleet of the other tests
        kafka={"host": HOST, "port": free_port(HOST), "listeners": [listener]},
        security={"users": USERS, "tokens": {"jwks_file": str(key_set)}, "max_reauth_ms": REAUTH_MS},
        authorization={"authorizer": "acl", "super_users": [f"User:{SUPER_USER}", "User:ANONYMOUS"]},
    )  # fmt: skip
    with running(server):
        yield f"{HOST}:{port}"
