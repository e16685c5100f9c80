"""Java's transactional producer with tokens that expire every few seconds, TLS that haproxy passes through, PROXY v2,
and two gateways behind a single address, of which each is restarted."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.haproxy.config import Backend, single_address_config
from deploy.local.certificates import STORE_PASSWORD, Authority
from deploy.local.jars import classpath
from deploy.local.java import java_executable
from deploy.local.process import ChildProcess, bound, free_port
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured import USER, write_properties
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.security.test_login import ALLOW_FILES, new_topic
from tests.integration.servers import await_fleet, gateway_on, metric, running
from tests.integration.token_provider import SHORT_TOKENS, asking, token_provider
from tests.support import jaas
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.java_programs.kafka_tools import JVM_OPTIONS
from tests.support.names import unique_topic
from tests.support.tokens import Issuer

TOKEN_S, REAUTH_MS = 4.0, 3_000
PARTITIONS = 4
RECORDS, RATE = 3_000, 150
"""Records, and records a second."""
TRANSACTION_MS = 200
WITHIN_S = 120.0
SILENT_S = 4.0
"""The producer's requests time out after 10 s."""
ATTEMPTS = 3
pytestmark = pytest.mark.timeout(400)


class Fleet:
    """Two gateways with one listener, behind a haproxy that only passes bytes on."""

    def __init__(self, pulsar: SecuredPulsar, folder: Path) -> None:
        self.authority = Authority(folder)
        self.issuer = Issuer(folder / "tokens")
        server = self.authority.issue("outside", hosts=[HOST])
        self.port, namespace = free_port(), unique_topic("tokens")
        self.gateways: list[GatewayProcess] = []
        for number in range(2):
            listener: dict[str, Any] = {
                "name": "outside", "host": HOST, "port": free_port(), "single_address": True,
                "advertised_port": self.port, "proxy_protocol": True, "protocol": "SASL_SSL",
                "mechanisms": ["OAUTHBEARER"],
                "tls": {"certificate": str(server.certificate), "key": str(server.key)},
            }  # fmt: skip
            own = self.authority.issue(f"gateway-{number}")
            peers = {
                "certificate": str(own.certificate), "key": str(own.key),
                "authorities": str(self.authority.certificate),
            }  # fmt: skip
            forwarding = {
                "host": HOST, "port": free_port(), "tls": peers, "peer_names": ["CN=gateway-0", "CN=gateway-1"],
            }  # fmt: skip
            tokens = {"public_key_file": str(self.issuer.public_key_file)}
            self.gateways.append(
                gateway_on(
                    pulsar, folder / f"gateway-{number}", pulsar={"namespace": namespace},
                    fleet={"forwarding": forwarding},
                    kafka={"host": HOST, "port": free_port(), "listeners": [listener]},
                    security={"tokens": tokens, "max_reauth_ms": REAUTH_MS},
                )
            )  # fmt: skip
        config = folder / "haproxy.cfg"
        config.write_text(single_address_config([_backend(each) for each in self.gateways], HOST, self.port))
        self._haproxy = ChildProcess("haproxy", folder / "haproxy.log")
        self._command = ["haproxy", "-db", "-f", str(config)]

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @contextlib.contextmanager
    def started(self) -> Iterator[Fleet]:
        with running(self.gateways[0]), running(self.gateways[1]):
            await_fleet(self.gateways)
            self._haproxy.start(self._command)
            try:
                yield self
            finally:
                self._haproxy.stop()

    def logins_again(self) -> float:
        return sum(metric(each, "kafka_gateway_logins_total", outcome="again") for each in self.gateways)

    def librdkafka(self) -> dict[str, Any]:
        def token(_: str) -> tuple[str, float]:
            return self.issuer.token(USER, lifetime_s=TOKEN_S), time.time() + TOKEN_S

        return {
            "bootstrap.servers": self.bootstrap, "security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER",
            "ssl.ca.location": str(self.authority.certificate), "oauth_cb": token,
        }  # fmt: skip

    def java(self, folder: Path, url: str) -> Path:
        """A properties file."""
        file = folder / "client.properties"
        store = self.authority.trust_store
        trusted = {
            "ssl.truststore.location": str(store), "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": STORE_PASSWORD,
        }  # fmt: skip
        login = {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": jaas.BEARER_LOGIN,
        }  # fmt: skip
        write_properties(file, trusted | login | SHORT_TOKENS | asking(url))
        return file


def _backend(gateway: GatewayProcess) -> Backend:
    listener = gateway.config["kafka"]["listeners"][0]
    return Backend(HOST, int(listener["port"]), int(gateway.config["http"]["port"]))


@pytest.fixture
def fleet(secured_pulsar: SecuredPulsar, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(secured_pulsar, tmp_path / "fleet").started() as found:
        yield found


def committed(fleet: Fleet, topic: str) -> list[bytes]:
    """What a consumer that also uses such tokens reads, up to the end of the log."""
    consumer = Consumer(
        {
            **fleet.librdkafka(), "group.id": topic, "isolation.level": "read_committed", "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    values, at_end = [], set[int]()
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(at_end) < PARTITIONS and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 1.0):
                if message.error() is None:
                    values.append(message.value() or b"")
                else:
                    at_end.add(message.partition() or 0)
    assert len(at_end) == PARTITIONS
    return values


def write(fleet: Fleet, topic: str, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Java's producer writes all records, in transactions."""
    payload = folder / "payload"
    payload.write_text("".join(f"record {number}\n" for number in range(100)))
    config = fleet.java(folder, url)
    command = [
        java_executable(), *JVM_OPTIONS, f"{ALLOW_FILES}={url}", "-cp", classpath("kafka"),
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS),
        "--throughput", str(RATE), "--payload-file", str(payload), "--producer.config", str(config),
        "--transactional-id", topic, "--transaction-duration-ms", str(TRANSACTION_MS),
        "--producer-props", f"bootstrap.servers={fleet.bootstrap}",
    ]  # fmt: skip
    return subprocess.run(
        bound(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WITHIN_S, check=False
    )


def sends_nothing(fleet: Fleet, writing: Future[subprocess.CompletedProcess[str]]) -> bool:
    """Whether the producer sends nothing for a long time, although all its requests are answered."""
    found, before, since = False, -1.0, time.monotonic()
    while not writing.done():
        try:
            received = sum(metric(each, "kafka_gateway_bytes_in_total") for each in fleet.gateways)
            unanswered = sum(metric(each, "kafka_gateway_requests_in_flight") for each in fleet.gateways)
        except (OSError, AssertionError):  # a gateway is being restarted
            received, unanswered = -1.0, 1.0
        if received != before or unanswered:
            before, since = received, time.monotonic()
        found = found or (received > 0 and time.monotonic() - since >= SILENT_S)
        time.sleep(0.25)
    return found


def attempt(fleet: Fleet, folder: Path) -> bool:
    """False if the client has sent nothing for a long time, and everything was answered."""
    topic = new_topic(fleet.librdkafka(), PARTITIONS)
    before = fleet.logins_again()
    with token_provider(fleet.issuer, USER, TOKEN_S) as url, ThreadPoolExecutor() as threads:
        writing = threads.submit(write, fleet, topic, folder, url)
        watching = threads.submit(sends_nothing, fleet, writing)

        def log_in_again() -> None:
            wait_for(lambda: fleet.logins_again() > before or writing.done(), "the producer logs in again", TIMEOUT_S)

        log_in_again()
        for gateway in fleet.gateways:
            gateway.stop()
            gateway.start()
            gateway.wait_ready()
            await_fleet(fleet.gateways)
            before = 0
            log_in_again()
        is_early, done = writing.done(), writing.result()
        is_silent = watching.result()
    if is_silent and "TimeoutException" in done.stdout:
        return False
    assert not is_early and done.returncode == 0 and f"{RECORDS} records sent" in done.stdout, done.stdout
    assert len(committed(fleet, topic)) == RECORDS, "none is lost, none is doubled"
    return True


def test_transactions_outlast_tokens_and_gateways(fleet: Fleet, tmp_path: Path) -> None:
    """Under load, Java's producer sometimes hangs while it logs in again over TLS, until its request times out.

    Its socket is empty then, and its network thread waits in `select`, although the response to SaslHandshake has come.
    Such a run is repeated.
    """
    assert any(attempt(fleet, tmp_path) for _ in range(ATTEMPTS))
