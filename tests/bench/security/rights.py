"""What authorization and quotas cost for each batch: of two gateways in turns, and of the code alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from gateway.config import Config
from gateway.dispatch import Dispatcher
from gateway.handlers.table import APIS
from gateway.metering.meter import Meter
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener
from gateway.requests.reply import Reply
from gateway.security.acls import Acl
from gateway.security.authorizer import AclAuthorizer
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER
from gateway.security.quotas import Quotas
from gateway.security.records import QuotaKey, acl_record, quota_record
from gateway.security.state import SecurityState
from protocol.kafka import acl as kafka_acl
from protocol.kafka.messages.records import ProduceResponse
from tests.bench.figures import Figures
from tests.bench.frames import LENGTH_BYTES, ProduceFrames, record_batch
from tests.bench.security.gateways import ROUNDS, gateway_on, listener_address, produce_cost
from tests.bench.servers import create_topic
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

SIZES = (10, 160)
OTHER_ACLS = 1_000
LARGE_RATE = 1e12
ADMIN, PASSWORD = "admin", "bench"
TIMEOUT_S = 30.0
BATCHES, REPEATS = 5_000, 9
TOPIC = "orders"
"""For the code alone."""


def rights(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Two gateways: one without an authorizer, one with ACLs, and with quotas that are never reached."""
    with ExitStack() as stack:
        gateways = {
            "without": stack.enter_context(gateway_on(work_dir, pulsar)),
            "with": stack.enter_context(gateway_on(work_dir, pulsar, **_guarded_sections())),
        }
        _set_rights(gateways["with"])
        costs = {size: _in_turns(gateways, size) for size in SIZES}
    added_us = added_cost_us()
    for size, pairs in costs.items():
        without_us, with_us = (statistics.median(each) for each in zip(*pairs, strict=True))
        figures.add(
            "Authorization and quotas, CPU of the gateway for a batch that is produced",
            ("records in a batch", "µs without", "µs with", "with / without, median of the rounds",
             "µs of their code alone", "of a batch without, %"),
            [size, without_us, with_us, statistics.median(b / a for a, b in pairs), added_us,
             added_us / without_us * 100],
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
    quotas = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
    ops = [{"key": quota, "value": LARGE_RATE, "remove": False} for quota in quotas]
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


# The code alone


def added_cost_us() -> float:
    """The time that guard and meter add to a Produce request of one batch: the shortest of several measurements."""
    without, guarded = produce_path(guarded=False), produce_path(guarded=True)
    return _best_us(guarded) - _best_us(without)


def produce_path(*, guarded: bool) -> Callable[[], None]:
    """One Produce request through the handlers of a connection; the last handler answers immediately."""
    state = SecurityState()
    for number in range(OTHER_ACLS):
        state.apply(acl_record(_acl(f"other-{number}", "User:other"), present=True))
    state.apply(acl_record(_acl("*", "User:ANONYMOUS"), present=True))
    state.complete()
    for quota in (PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE):
        state.apply(quota_record(QuotaKey(frozenset({(USER, None)}), quota), LARGE_RATE))
    topics = SimpleNamespace(cached=lambda _: None)
    cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), topics=topics))
    authorizer = AclAuthorizer(state, (), allow_everyone=False) if guarded else None
    dispatcher = Dispatcher(cluster, None, authorizer, Meter(Quotas(state)) if guarded else None)
    context = dispatcher.context(Client("127.0.0.1:1"), Listener(""))
    handler = dispatcher.handler(context)
    frame = bytearray(b"".join(ProduceFrames(TOPIC, record_batch(10)).request(1))[LENGTH_BYTES:])
    call = dispatcher.begin(frame, context)
    response = ProduceResponse(responses=[])
    call = Call(
        replace(call.api, handle=lambda _: Reply(response)), call.version, 1, "bench", call.request, context, frame
    )
    assert call.api.key is APIS[0].key

    def run() -> None:
        reply = handler.handle(call)
        assert reply.response is response
        dispatcher.complete(call, response)

    return run


def _acl(topic: str, principal: str) -> Acl:
    return Acl(
        kafka_acl.ResourceType.TOPIC, kafka_acl.PatternType.LITERAL, topic, principal, "*",
        kafka_acl.AclOperation.ALL, kafka_acl.Permission.ALLOW,
    )  # fmt: skip


def _best_us(run: Callable[[], None]) -> float:
    best_s = float("inf")
    for _ in range(REPEATS):
        begun_s = time.thread_time()
        for _ in range(BATCHES):
            run()
        best_s = min(best_s, time.thread_time() - begun_s)
    return best_s / BATCHES * 1e6
