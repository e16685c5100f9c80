"""For operators: metrics, health, logs without record data, and a clear error when the gateway cannot start."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, assigned, consume, create_topic, produce, take
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, lone_gateway_on, metric, running
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

START_TIMEOUT_S = 60
SECRET = "a-secret-that-no-log-may-show"


@pytest.fixture
def observed(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway of its own, so that its counters belong to this test."""
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway:
        yield gateway


def serve(config: Path) -> subprocess.CompletedProcess[str]:
    """Run a gateway that is expected to exit."""
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)


def test_metrics_count_what_clients_do(observed: GatewayProcess) -> None:
    topic = unique_topic("metrics")
    create_topic(observed.bootstrap, topic)
    produce(observed.bootstrap, topic, [Record(b"x" * 1_000)] * 100, client_id="tester")
    assert len(consume(observed.bootstrap, topic, 100)) == 100
    counted = {
        name: metric(observed, f"kafka_gateway_{name}")
        for name in ("bytes_in_total", "bytes_out_total", "connections_accepted_total", "cache_bytes")
    }
    assert counted["bytes_in_total"] > 100_000
    assert counted["bytes_out_total"] > 100_000
    assert counted["cache_bytes"] > 100_000
    assert counted["connections_accepted_total"] >= 3
    assert metric(observed, "kafka_gateway_entries_written_total") >= 1
    assert metric(observed, "kafka_gateway_batches_written_total") >= 1
    assert metric(observed, "kafka_gateway_cache_hits_total") >= 1
    for api in ("ApiVersions", "Metadata", "CreateTopics", "Produce", "Fetch", "ListOffsets"):
        assert metric(observed, "kafka_gateway_request_latency_seconds_count", api=api) >= 1, api
    assert metric(observed, "kafka_gateway_client_software_total", name="confluent-kafka-python") >= 1
    assert metric(observed, "kafka_gateway_pulsar_connections", state="ready") == 1
    assert metric(observed, "process_resident_memory_bytes") > 0


def test_metrics_count_errors_and_open_connections(observed: GatewayProcess) -> None:
    raw = RawClient(observed.bootstrap)
    try:
        raw.call("Metadata", 4, topics=[{"name": "absent"}], allow_auto_topic_creation=False)
        assert metric(observed, "kafka_gateway_errors_total", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
        assert metric(observed, "kafka_gateway_connections") == 1
    finally:
        raw.close()
    wait_for(lambda: metric(observed, "kafka_gateway_connections") == 0, "the connection is no longer counted")
    assert metric(observed, "kafka_gateway_requests_in_flight") == 0


def test_a_waiting_fetch_is_in_flight(observed: GatewayProcess) -> None:
    topic = unique_topic("in-flight")
    create_topic(observed.bootstrap, topic)
    with assigned(observed.bootstrap, topic, offset=0, fetch_wait_max_ms=10_000) as consumer:
        assert consumer.poll(0.5) is None
        wait_for(lambda: metric(observed, "kafka_gateway_requests_in_flight") >= 1, "the fetch waits")
        produce(observed.bootstrap, topic, [Record(b"value")])
        take(consumer, 1)


def test_health_and_readiness(observed: GatewayProcess) -> None:
    assert observed.get("/healthz", TIMEOUT_S) == (200, "ok\n")
    assert observed.get("/readyz", TIMEOUT_S) == (200, "ready\n")


def test_not_ready_without_pulsar(tmp_path: Path) -> None:
    port = free_port()
    gateway = GatewayProcess(tmp_path, f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}")
    gateway.start()
    try:
        wait_for(lambda: "waiting for Pulsar" in gateway.get("/readyz")[1], "the gateway says what it waits for")
        assert gateway.get("/readyz", TIMEOUT_S)[0] == 503
        assert gateway.get("/healthz", TIMEOUT_S)[0] == 200
        with pytest.raises(ConnectionRefusedError):
            RawClient(gateway.bootstrap)
    finally:
        gateway.stop()
    assert not gateway.running


def test_logs_hold_no_record_data(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """Whether records are accepted, refused or corrupt."""
    topic = unique_topic("logs")
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway:
        create_topic(gateway.bootstrap, topic, config={"max.message.bytes": "50000"})
        secret = Record(SECRET.encode(), SECRET.encode(), ((SECRET, SECRET.encode()),))
        produce(gateway.bootstrap, topic, [secret] * 10)
        consume(gateway.bootstrap, topic, 10)
        assert refused(gateway.bootstrap, topic, SECRET.encode() * 3_000) == KafkaError.MSG_SIZE_TOO_LARGE
        for garbage in (SECRET.encode(), b"\x00\x00\x00\x40\x00\x00\x00\x09" + SECRET.encode() * 3):
            raw = RawClient(gateway.bootstrap)
            raw.send_raw(garbage)
            raw.close()
        assert produce(gateway.bootstrap, topic, [secret]) == [10]
        text = gateway.log_path.read_text()
    assert SECRET not in text
    events = [json.loads(line) for line in text.splitlines()]
    assert any(event["event"] == "serving" for event in events)


def refused(bootstrap: str, topic: str, value: bytes) -> int:
    """The error code of a produced record."""
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush(TIMEOUT_S)
    [error] = errors
    assert error is not None
    return error.code()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[kafka]\nport = ", "not TOML"),
        ("\xff", "Invalid statement"),
        ("[kafka]\nporrt = 9092", "kafka.porrt"),
        ('[kafka]\nport = "abc"', "kafka.port"),
        ("[kafka]\nport = 70000", "kafka.port"),
        ('[pulsar]\nservice_url = "http://127.0.0.1"', "service_url"),
        ("[limits]\nmax_message_bytes = 200_000_000", "max_message_bytes must fit into max_request_bytes"),
        ('log_level = "loud"', "log_level"),
    ],
)
def test_a_bad_configuration_is_named_in_one_line(tmp_path: Path, content: str, reason: str) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(content, encoding="utf-8")
    done = serve(config)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"kafka-gateway: {config}: ")
    assert reason in line
    assert done.stdout == ""


def test_a_missing_configuration_is_named_in_one_line(tmp_path: Path) -> None:
    done = serve(tmp_path / "absent.toml")
    assert (done.returncode, done.stderr) == (1, f"kafka-gateway: {tmp_path}/absent.toml: No such file or directory\n")


def test_secrets_of_a_bad_configuration_are_not_repeated(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'[pulsar]\ntoken = "{SECRET}"\nservice_url = "{SECRET}"\nwrong = "{SECRET}"')
    assert SECRET not in serve(config).stderr


def test_a_port_that_is_taken_is_named_in_one_line(
    observed: GatewayProcess, pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    other = gateway_on(pulsar, tmp_path / "other", kafka={"port": observed.config["kafka"]["port"]})
    other.start()
    wait_for(lambda: not other.running, "the gateway gives up")
    last = other.log_path.read_text().splitlines()[-1]
    assert last.startswith("kafka-gateway: ")
    assert "address already in use" in last
