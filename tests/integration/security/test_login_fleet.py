"""Gateways that authenticate each other by certificates, behind one address where clients log in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.certificates import Authority, Issued
from deploy.local.process import free_port
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.errors import ErrorCode
from tests.conformance.records import batch, records
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured import PASSWORD, USER
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.security.test_login import new_topic
from tests.integration.servers import await_fleet, gateway_on, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

PARTITIONS = 8
LIMITED = "bob"
"""Has the rights that ACLs give; the other user may do everything."""
GROUPS = 12
"""So many that each gateway leads some."""
REVOKED_WITHIN_S = 30.0
"""It takes milliseconds, and is meant to take less than a second. But on a busy machine Pulsar alone, which stores the
change and sends it to the gateways, may need seconds for it."""


class Pair:
    """Two gateways; `bootstrap` is the first one's listener with a single address."""

    def __init__(self, pulsar: SecuredPulsar, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("outside", hosts=[HOST])
        namespace = unique_topic("pair")
        single = free_port()
        self.bootstrap = f"{HOST}:{single}"
        self.forwarding = [free_port(), free_port()]
        self.gateways: list[GatewayProcess] = []
        for number, forwarding in enumerate(self.forwarding):
            own = self.authority.issue(f"gateway-{number}")
            listener: dict[str, Any] = {
                "name": "outside", "host": HOST, "port": free_port() if number else single, "single_address": True,
                "advertised_port": single, "protocol": "SASL_SSL", "mechanisms": ["SCRAM-SHA-256", "PLAIN"],
                "tls": {"certificate": str(self.server.certificate), "key": str(self.server.key)},
            }  # fmt: skip
            peers = {
                "certificate": str(own.certificate), "key": str(own.key),
                "authorities": str(self.authority.certificate),
            }  # fmt: skip
            fleet = {
                "forwarding": {
                    "host": HOST, "port": forwarding, "tls": peers, "peer_names": ["CN=gateway-0", "CN=gateway-1"],
                }
            }  # fmt: skip
            self.gateways.append(
                gateway_on(
                    pulsar, folder / f"gateway-{number}", pulsar={"namespace": namespace}, fleet=fleet,
                    kafka={"host": HOST, "port": free_port(), "listeners": [listener]},
                    security={"users": {USER: PASSWORD, LIMITED: PASSWORD}},
                    authorization={"authorizer": "acl", "super_users": [f"User:{USER}"]},
                )
            )  # fmt: skip

    @property
    def client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap, "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.certificate), "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER, "sasl.password": PASSWORD,
        }  # fmt: skip

    def connected(self, number: int, timeout_s: float = TIMEOUT_S) -> contextlib.AbstractContextManager[RawClient]:
        """A connection to the gateway with this number."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        port = self.gateways[number].config["kafka"]["listeners"][0]["port"]
        return connected(f"{HOST}:{port}", timeout_s=timeout_s, tls=(context, HOST))

    @contextlib.contextmanager
    def logged_in(self, user: str, number: int = 0, timeout_s: float = TIMEOUT_S) -> Iterator[RawClient]:
        with self.connected(number, timeout_s) as client:
            assert client.call("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == 0
            token = f"\0{user}\0{PASSWORD}".encode()
            assert client.call("SaslAuthenticate", 1, auth_bytes=token)["error_code"] == 0
            yield client


@pytest.fixture(scope="module")
def pair(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    found = Pair(secured_pulsar, tmp_path_factory.mktemp("pair"))
    with running(found.gateways[0]), running(found.gateways[1]):
        await_fleet(found.gateways)
        yield found


def test_requests_are_forwarded_by_tls(pair: Pair) -> None:
    topic = new_topic(pair.client, PARTITIONS)
    producer = Producer(pair.client)
    sent = {b"%d" % number for number in range(400)}
    for value in sent:
        producer.produce(topic, value, partition=int(value) % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**pair.client, "group.id": topic, "auto.offset.reset": "earliest"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        read: set[bytes] = set()
        while read != sent:
            messages = consumer.consume(len(sent), TIMEOUT_S)
            assert messages
            read |= {message.value() or b"" for message in messages}


def allow(
    client: RawClient, resource_type: ResourceType, name: str, operation: AclOperation = AclOperation.READ
) -> None:
    creation = {
        "resource_type": resource_type, "resource_name": name, "resource_pattern_type": PatternType.PREFIXED,
        "principal": f"User:{LIMITED}", "host": "*", "operation": operation, "permission_type": Permission.ALLOW,
    }  # fmt: skip
    answer = client.call("CreateAcls", 3, creations=[creation])
    assert [row["error_code"] for row in answer["results"]] == [0]


def knows_acls(pair: Pair, number: int, names: set[str]) -> bool:
    with pair.logged_in(USER, number) as client:
        answer = client.call(
            "DescribeAcls", 3, resource_type_filter=ResourceType.ANY, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=None, host_filter=None, operation=AclOperation.ANY,
            permission_type=Permission.ANY,
        )  # fmt: skip
    return names <= {row["resource_name"] for row in answer["resources"]}


def joined(client: RawClient, group: str, regex: str) -> None:
    answer = client.call(
        "ConsumerGroupHeartbeat", 1, group_id=group, member_id=str(uuid.uuid4()), member_epoch=0, instance_id=None,
        rack_id=None, rebalance_timeout_ms=30_000, subscribed_topic_names=None, subscribed_topic_regex=regex,
        server_assignor=None, topic_partitions=[],
    )  # fmt: skip
    assert answer["error_code"] == 0, answer


def test_the_leader_of_a_group_knows_the_rights_of_members_of_another_gateway(pair: Pair) -> None:
    """An expression matches only topics that the member may describe, at every gateway."""
    prefix = unique_topic("matched")
    names = [f"{prefix}-{name}" for name in ("open", "closed")]
    topics = AdminClient(pair.client)
    for future in topics.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(TIMEOUT_S)
    groups = [f"{prefix}-group-{number}" for number in range(GROUPS)]
    with pair.logged_in(USER) as admin, pair.logged_in(LIMITED) as client:
        allow(admin, ResourceType.TOPIC, names[0])
        allow(admin, ResourceType.GROUP, prefix)
        for number in range(len(pair.gateways)):
            wait_for(partial(knows_acls, pair, number, {names[0], prefix}), "the gateway knows the ACLs")
        for group in groups:
            joined(client, group, f"{prefix}-[a-z]+")
        described = admin.call("ConsumerGroupDescribe", 0, group_ids=groups, include_authorized_operations=False)
    for group in described["groups"]:
        [member] = group["members"]
        targets = [row["topic_name"] for row in member["target_assignment"]["topic_partitions"]]
        assert (group["error_code"], targets) == (0, names[:1])


def written(client: RawClient, topic: str, partition: int) -> ErrorCode:
    answer = client.call("Produce", 7, **produce_fields(7, {topic: {partition: batch(records(1))}}))
    [topic_row] = answer["responses"]
    return ErrorCode(topic_row["partition_responses"][0]["error_code"])


def fetched(client: RawClient, topic: str, partition: int) -> tuple[set[ErrorCode], int]:
    """The errors of a fetch from the start that waits for records, and the size of what it got."""
    wanted = [{"topic": topic, "partitions": [fetch_partition(11, partition, 0)]}]
    answer = client.call("Fetch", 11, **fetch_fields(11, wanted, max_wait_ms=120_000, min_bytes=1))
    rows = [row for each in answer["responses"] for row in each["partitions"]]
    errors = {ErrorCode(row["error_code"]) for row in [answer, *rows]}
    return errors - {ErrorCode.NONE}, sum(len(row["records"] or b"") for row in rows)


def revoke(client: RawClient, prefix: str) -> None:
    of_prefix = {
        "resource_type_filter": ResourceType.TOPIC, "resource_name_filter": prefix,
        "pattern_type_filter": PatternType.PREFIXED, "principal_filter": None, "host_filter": None,
        "operation": AclOperation.ANY, "permission_type": Permission.ANY,
    }  # fmt: skip
    [answer] = client.call("DeleteAcls", 3, filters=[of_prefix])["filter_results"]
    assert len(answer["matching_acls"]) == 2, answer


def test_a_revoked_right_ends_at_the_other_gateway(pair: Pair) -> None:
    """For a producer, and for fetches that wait: those that a gateway answers itself, and those of its peer."""
    prefix = unique_topic("revoked")
    busy, quiet = f"{prefix}-busy", f"{prefix}-quiet"
    topics = AdminClient(pair.client)
    for future in topics.create_topics([NewTopic(name, PARTITIONS) for name in (busy, quiet)]).values():
        future.result(TIMEOUT_S)
    with contextlib.ExitStack() as stack:
        admin, producer = (stack.enter_context(pair.logged_in(user, n)) for n, user in enumerate((USER, LIMITED)))
        for operation in (AclOperation.READ, AclOperation.WRITE):
            allow(admin, ResourceType.TOPIC, prefix, operation)
        pool = stack.enter_context(ThreadPoolExecutor(PARTITIONS))
        wait_for(lambda: written(producer, busy, 0) is ErrorCode.NONE, "the client may write")
        waiting: list[Future[tuple[set[ErrorCode], int]]] = []
        for partition in range(PARTITIONS):
            consumer = stack.enter_context(pair.logged_in(LIMITED, 1, 3 * TIMEOUT_S))
            waiting.append(pool.submit(fetched, consumer, quiet, partition))
        for number in range(5 * PARTITIONS):  # meanwhile the fetches arrive
            assert written(producer, busy, number % PARTITIONS) is ErrorCode.NONE
        revoke(admin, prefix)
        revoked_s = time.monotonic()
        while written(producer, busy, 0) is ErrorCode.NONE:
            assert time.monotonic() < revoked_s + REVOKED_WITHIN_S
        for partition in range(PARTITIONS):
            assert written(producer, busy, partition) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not any(each.done() for each in waiting)
        for partition in range(PARTITIONS):
            assert written(admin, quiet, partition) is ErrorCode.NONE
        # A fetch that the peer answers ends as if it had restarted: the client asks again, and is denied.
        answers = [each.result(TIMEOUT_S) for each in waiting]
        assert {size_bytes for _, size_bytes in answers} == {0}
        denied, begun_again = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}, {ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
        assert {frozenset(errors) for errors, _ in answers} <= {frozenset(denied), frozenset(begun_again)}
        with pair.logged_in(LIMITED, 1) as consumer:
            assert fetched(consumer, quiet, 0) == (denied, 0)


REQUEST = b"PROXY TCP4 192.0.2.7 0.0.0.0 5 0\r\n\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
TLS_ALERT = b"\x15"


def is_refused(port: int, context: ssl.SSLContext | None) -> bool:
    """The connection is closed without a response."""
    plain = socket.create_connection((HOST, port), TIMEOUT_S)
    with contextlib.closing(plain):
        if context is None:
            plain.sendall(REQUEST)
            return plain.recv(1) in {b"", TLS_ALERT}
        try:
            with context.wrap_socket(plain) as secured:
                secured.sendall(REQUEST)
                return secured.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


@pytest.mark.parametrize("name", [LIMITED, "nobody"])
def test_all_gateways_show_the_same_salt(pair: Pair, name: str) -> None:
    challenges = []
    for number in range(2):
        with pair.connected(number) as client:
            assert client.call("SaslHandshake", 1, mechanism="SCRAM-SHA-256")["error_code"] == 0
            answer = client.call("SaslAuthenticate", 1, auth_bytes=f"n,,n={name},r=abc".encode())
            challenges.append(bytes(answer["auth_bytes"]).split(b",", 1)[1])
    assert challenges[0] == challenges[1] and challenges[0].startswith(b"s=")


def test_only_peers_may_forward(pair: Pair, tmp_path: Path) -> None:
    def context(issued: Issued | None) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        found.check_hostname = False
        found.load_verify_locations(pair.authority.certificate)
        if issued is not None:
            found.load_cert_chain(issued.certificate, issued.key)
        return found

    peer, other = (pair.authority.issue(name) for name in ("gateway-0", "mallory"))
    stranger = Authority(tmp_path).issue("gateway-1")
    for port in pair.forwarding:
        assert is_refused(port, None)
        assert is_refused(port, context(None))
        assert is_refused(port, context(stranger))
        assert is_refused(port, context(other))
        assert not is_refused(port, context(peer))
