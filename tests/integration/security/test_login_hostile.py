"""Clients that fail to log in, and clients that log in and then misbehave, at a gateway on a real Pulsar."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured import PASSWORD, USER, Secured
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import metric, resident_bytes, running
from tests.support.gateway_process import HOST
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, RawClient, connected, encode_request

MIB = 1024 * 1024
CANARY = "canary-of-an-unauthenticated-client"
GOOD = f"\0{USER}\0{PASSWORD}".encode()
WRONG = f"\0{USER}\0{CANARY}".encode()


@pytest.fixture(scope="module")
def secured(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    limits = {"unread_budget_bytes": 20 * MIB, "max_unauthenticated_per_address": 400}
    found = Secured(secured_pulsar, tmp_path_factory.mktemp("hostile"), limits=limits)
    cast(dict[str, Any], found.gateway.config)["log_level"] = "debug"
    with running(found.gateway):
        yield found


def framed(*requests: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in requests)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return encode_request("SaslHandshake", version, {"mechanism": mechanism})


def token(data: bytes, version: int = 1) -> bytes:
    return encode_request("SaslAuthenticate", version, {"auth_bytes": data})


METADATA = encode_request("Metadata", 1, {"topics": None}, correlation_id=77)
VERSIONS = encode_request("ApiVersions", 0, {}, correlation_id=78)
BEARER = f"n,,\x01auth=Bearer {CANARY}.e30.e30\x01\x01".encode()
REFUSED: dict[str, list[bytes]] = {
    "nothing": [METADATA],
    "behind versions": [VERSIONS, METADATA],
    "versions twice": [VERSIONS, VERSIONS, METADATA],
    "behind a handshake": [handshake(), METADATA],
    "behind a wrong password": [handshake(), token(WRONG), METADATA],
    "behind a wrong password, then a right one": [handshake(), token(WRONG), token(GOOD), METADATA],
    "behind a bare wrong token": [handshake(version=0), WRONG, METADATA],
    "a token without a handshake": [token(GOOD), METADATA],
    "a bare token where requests are awaited": [handshake(), GOOD, METADATA],
    "a request where bare tokens are awaited": [handshake(version=0), token(GOOD), METADATA],
    "two handshakes": [handshake(), handshake(), token(GOOD), METADATA],
    "an unknown mechanism": [handshake("GSSAPI"), token(GOOD), METADATA],
    "no mechanism": [handshake(""), token(GOOD), METADATA],
    "half of SCRAM": [handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), METADATA],
    "SCRAM without a proof": [
        handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), token(b"c=biws,r=abc,p="), METADATA,
    ],
    "a refused bearer": [handshake("OAUTHBEARER"), token(BEARER), METADATA],
    "a refused bearer, acknowledged": [handshake("OAUTHBEARER"), token(BEARER), token(b"\x01"), METADATA],
    "a refused bearer in bare tokens": [handshake("OAUTHBEARER", 0), BEARER, METADATA],
    "no user": [handshake(), token(f"\0\0{CANARY}".encode()), METADATA],
    "too many parts": [handshake(), token(f"\0{USER}\0{PASSWORD}\0".encode()), METADATA],
    "another authorization id": [handshake(), token(b"root" + GOOD), METADATA],
    "a token that is cut": [handshake(), token(GOOD)[:-3], METADATA],
    "a frame of nothing": [handshake(), b"", METADATA],
}  # fmt: skip


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
@pytest.mark.parametrize("how", REFUSED)
def test_no_client_is_served_without_a_login(secured: Secured, how: str, pause_s: float) -> None:
    """In one segment, and request by request."""
    with connected(secured.address("sasl")) as client:
        for request in [REFUSED[how]] if not pause_s else [[each] for each in REFUSED[how]]:
            client.send_raw(framed(*request))
            time.sleep(pause_s)
        answers = []
        with pytest.raises(ConnectionClosedError):
            while True:
                answers.append(client.read_frame())
    assert not any(each.startswith(struct.pack(">i", 77)) for each in answers)


def test_a_login_and_requests_in_one_segment(secured: Secured) -> None:
    with connected(secured.address("sasl")) as client:
        client.send_raw(framed(VERSIONS, handshake(), token(GOOD), METADATA))
        answers = [client.read_frame() for _ in range(4)]
    assert answers[3].startswith(struct.pack(">i", 77))


def test_clients_before_login_have_a_memory_limit(secured: Secured) -> None:
    """Each client leaves a request half sent: together they are more than the budget of all requests."""
    half = struct.pack(">i", 500 * 1024) + bytes(450 * 1024)
    with contextlib.ExitStack() as stack, connected(secured.address("sasl")) as client:
        log_in(client)
        unauthenticated = []
        for _ in range(200):
            other = stack.enter_context(contextlib.closing(socket.create_connection((HOST, secured.ports["sasl"]))))
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                other.send(half)
            unauthenticated.append(other)
        for _ in range(20):
            client.call("Metadata", 1, topics=[])
        assert metric(secured.gateway, "kafka_gateway_request_bytes") < 16 * MIB


def log_in(client: RawClient) -> None:
    assert client.call("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == 0
    assert client.call("SaslAuthenticate", 1, auth_bytes=GOOD)["error_code"] == 0


def test_unread_responses_under_tls_are_bounded(secured: Secured) -> None:
    topic = unique_topic("unread")
    config = secured.librdkafka("tls")
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(config)
    for _ in range(40):
        producer.produce(topic, bytes(200 * 1024))
    assert producer.flush(TIMEOUT_S) == 0
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8 * MIB, "current_leader_epoch": -1}
    fields: dict[str, Any] = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 8 * MIB, "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }  # fmt: skip
    fetch = framed(encode_request("Fetch", 4, fields))
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    before = resident_bytes(secured.gateway.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            raw = stack.enter_context(contextlib.closing(socket.create_connection((HOST, secured.ports["tls"]))))
            client = stack.enter_context(context.wrap_socket(raw, server_hostname=HOST))
            client.sendall(fetch * 5)
        with connected(f"{HOST}:{secured.gateway.config['kafka']['port']}") as other:
            for _ in range(20):
                other.call("Metadata", 1, topics=[])
        grown = resident_bytes(secured.gateway.pid) - before
        wait_for(
            lambda: metric(secured.gateway, "kafka_gateway_connections_closed_total", reason="responses are not read"),
            "connections are closed",
        )
    assert grown < 160 * MIB, "of 480 MiB that were asked for"


def test_no_secret_is_logged_or_sent(secured: Secured) -> None:
    """Including everything that earlier tests have sent."""
    bearer = f"n,,\x01auth=Bearer {secured.issuer.token(USER)}\x01\x01".encode()
    for requests in ([handshake(), token(GOOD)], [handshake("OAUTHBEARER"), token(bearer)], *REFUSED.values()):
        with connected(secured.address("sasl")) as client:
            client.send_raw(framed(*requests))
            client.finish_sending()
            with pytest.raises(ConnectionClosedError):
                while True:
                    client.read_frame()
    told = secured.gateway.log_path.read_text() + secured.gateway.get("/metrics")[1]
    assert "client logged in" in told and "login failed" in told and USER in told
    for secret in (PASSWORD, CANARY, "Bearer", "eyJ"):
        assert secret not in told
