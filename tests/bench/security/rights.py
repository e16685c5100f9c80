"""What authorization and quotas cost for each batch of two gateways, in turns."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from gateway.security.quota_entities import USER
from tests.bench.figures import Figures
from tests.bench.inside.guarded import LARGE_RATE, OTHER_ACLS, QUOTAS
from tests.bench.security.gateways import ROUNDS, gateway_on, listener_address, produce_cost
from tests.bench.servers import create_topic
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

SIZES = (10, 160)
ADMIN, PASSWORD = "admin", "bench"
TIMEOUT_S = 30.0


def rights(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Two gateways: one without an authorizer, one with ACLs, and with quotas that are never reached."""
    with ExitStack() as stack:
        gateways = {
            "without": stack.enter_context(gateway_on(work_dir, pulsar)),
            "with": stack.enter_context(gateway_on(work_dir, pulsar, **_guarded_sections())),
        }
        _set_rights(gateways["with"])
        costs = {size: _in_turns(gateways, size) for size in SIZES}
    for size, pairs in costs.items():
        without_us, with_us = (statistics.median(each) for each in zip(*pairs, strict=True))
        figures.add(
            "Authorization and quotas, CPU of the gateway for a batch that is produced",
            ("records in a batch", "µs without", "µs with", "with / without, median of the rounds"),
            [size, without_us, with_us, statistics.median(b / a for a, b in pairs)],
        )  # fmt: skip


def _guarded_sections() -> dict[str, dict[str, Any]]:
    listener = {
        "name": "admin", "host": HOST, "port": free_port(), "protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"],
    }  # fmt: skip
    return {
        "kafka": {"host": HOST, "port": free_port(), "listeners": [listener]},
        "security": {"users": {ADMIN: PASSWORD}},
        "authorization": {"authorizer": "acl", "super_users": [f"User:{ADMIN}"]},
    }


def _set_rights(gateway: GatewayProcess) -> None:
    """ACLs that allow everything to clients without a login, among many ACLs of others; and quotas."""
    admin = AdminClient({
        "bootstrap.servers": listener_address(gateway, "admin"), "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": PASSWORD,
    })  # fmt: skip

    def binding(kind: ResourceType, name: str, principal: str) -> AclBinding:
        allow = (AclOperation.ALL, AclPermissionType.ALLOW)
        return AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", *allow)

    own = [binding(kind, "*", "User:ANONYMOUS") for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
    own.append(binding(ResourceType.BROKER, "kafka-cluster", "User:ANONYMOUS"))
    others = [binding(ResourceType.TOPIC, f"other-{number}", "User:other") for number in range(OTHER_ACLS)]
    for future in admin.create_acls([*own, *others]).values():
        future.result(TIMEOUT_S)
    ops = [{"key": quota, "value": LARGE_RATE, "remove": False} for quota in QUOTAS]
    entry = {"entity": [{"entity_type": USER, "entity_name": None}], "ops": ops}
    with connected(gateway.bootstrap) as client:
        answer = client.call("AlterClientQuotas", 0, entries=[entry], validate_only=False)
    assert not answer["entries"][0]["error_code"], answer


def _in_turns(gateways: dict[str, GatewayProcess], size: int) -> list[tuple[float, float]]:
    """µs a batch without and with them, for each round."""
    topics = {}
    for name, gateway in gateways.items():
        topics[name] = unique_topic("bench")
        create_topic(gateway.bootstrap, topics[name])
    pairs = []
    for number in range(ROUNDS):
        found = {}
        for name in [*gateways][:: -1 if number % 2 else 1]:
            gateway = gateways[name]
            found[name] = produce_cost([gateway.pid], gateway.bootstrap, topics[name], size)["cpu_us"][0]
        pairs.append((found["without"], found["with"]))
    return pairs
