"""Offsets are dense, and a record is read at the offset of its Produce response, whatever happens in between."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_END, OFFSET_STORED, KafkaError, TopicPartition

from deploy.local.standalone import PulsarStandalone
from gateway.namespace import INTERCEPTOR, TIME_INTERCEPTOR
from protocol.pulsar.entry import encode_message
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    Sender,
    assigned,
    commit,
    committed,
    consume,
    create_topic,
    delete_records,
    offsets_of,
    produce,
    read_all,
    take,
    watermarks,
)
from tests.integration.native import Admin, producer, wait_for
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import gateway_on, lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

ENTRIES_PER_LEDGER = 40
RETENTION_MINUTES = 60


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    name = unique_topic("offsets")
    create_topic(gateway.bootstrap, name)
    return name


@pytest.fixture(scope="module")
def rolling_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    """Begins a new ledger every few entries, deletes old ledgers early, and may be restarted."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": str(ENTRIES_PER_LEDGER),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "retentionCheckIntervalInSeconds": "1",
        "backlogQuotaCheckIntervalInSeconds": "1",
    }
    with running(PulsarStandalone(tmp_path_factory.mktemp("rolling"), settings=settings)) as server:
        yield server


@pytest.fixture(scope="module")
def rolling_gateway(
    rolling_pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with running(gateway_on(rolling_pulsar, tmp_path_factory.mktemp("gateway"))) as server:
        yield server


class Fleet(NamedTuple):
    """Two gateways of one namespace."""

    one: GatewayProcess
    other: GatewayProcess
    admin: Admin
    """Of the namespace's topics."""

    def create_topic(self) -> str:
        name = unique_topic("offsets")
        create_topic(self.one.bootstrap, name)
        return name


@pytest.fixture(scope="module")
def fleet(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    namespace = unique_topic("fleet")
    gateways = [
        gateway_on(pulsar, tmp_path_factory.mktemp(name), pulsar={"namespace": namespace}) for name in ("one", "other")
    ]
    with running(gateways[0]), running(gateways[1]):
        yield Fleet(gateways[0], gateways[1], Admin(pulsar, f"kafka/{namespace}"))


def values(count: int, kind: str = "value") -> list[bytes]:
    return [b"%s %d" % (kind.encode(), number) for number in range(count)]


def partition_zero(topic: str) -> str:
    return f"{topic}-partition-0"


@pytest.mark.parametrize("end", [GatewayProcess.stop, GatewayProcess.kill], ids=["stopped", "killed"])
def test_after_a_gateway_restart(
    pulsar: PulsarStandalone, tmp_path: Path, end: Callable[[GatewayProcess], None]
) -> None:
    topic, expected = unique_topic("offsets"), values(300)
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway:
        create_topic(gateway.bootstrap, topic)
        for start in range(0, 300, 100):
            records = [Record(value) for value in expected[start : start + 100]]
            offsets = produce(gateway.bootstrap, topic, records, batch_num_messages=7)
            assert offsets == [*range(start, start + 100)]
            end(gateway)
            gateway.start()
            gateway.wait_ready()
            assert watermarks(gateway.bootstrap, topic) == (0, start + 100)
            assert read_all(gateway.bootstrap, topic) == expected[: start + 100]


def test_while_ledgers_roll_over(rolling_pulsar: PulsarStandalone, rolling_gateway: GatewayProcess) -> None:
    topic = unique_topic("rollover")
    create_topic(rolling_gateway.bootstrap, topic)
    expected = values(600)
    # One request in flight, or the gateway would put several records into one entry.
    sender = Sender(rolling_gateway.bootstrap, topic, max_in_flight=1, batch_num_messages=1, linger_ms=0)
    with assigned(rolling_gateway.bootstrap, topic) as consumer:
        sender.send(expected)
        sender.flush()
        assert offsets_of(take(consumer, 600)) == [*range(600)]
    assert sender.offsets == {value: offset for offset, value in enumerate(expected)}
    assert len(Admin(rolling_pulsar).ledgers(partition_zero(topic))) > 600 // ENTRIES_PER_LEDGER // 2
    assert read_all(rolling_gateway.bootstrap, topic) == expected
    for offset in (0, 39, 40, 41, 79, 80, 399, 599):
        assert offsets_of(consume(rolling_gateway.bootstrap, topic, 1, offset=offset)) == [offset]


def test_retention_passes_a_group_that_is_dead(
    rolling_pulsar: PulsarStandalone, rolling_gateway: GatewayProcess
) -> None:
    """The group's subscription does not stop retention, its commit stays, and its next member gets OFFSET_OUT_OF_RANGE.
    """
    topic, bootstrap = unique_topic("retention"), rolling_gateway.bootstrap
    create_topic(bootstrap, topic, config={"retention.bytes": str(1 << 20)})
    commit(bootstrap, topic, topic, 0)
    wait_for(lambda: topic in Admin(rolling_pulsar).subscriptions(partition_zero(topic)), "the group is mirrored")
    large = Record(bytes(100_000))
    count = len(produce(bootstrap, topic, [large] * 3 * ENTRIES_PER_LEDGER, batch_num_messages=1, max_in_flight=1))
    low = wait_for(lambda: watermarks(bootstrap, topic)[0], "the broker deletes the first ledger")
    assert 0 < low < count
    assert committed(bootstrap, topic, topic) == [0]
    with assigned(bootstrap, topic, offset=0) as consumer:
        error = wait_for(lambda: consumer.poll(1.0), "the consumer hears of it").error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    options = {"group_id": topic, "auto_offset_reset": "earliest"}
    low = watermarks(bootstrap, topic)[0]
    (first,) = consume(bootstrap, topic, 1, offset=OFFSET_STORED, **options)
    assert low <= (first.offset() or 0) <= watermarks(bootstrap, topic)[0], "the broker may delete more meanwhile"


def test_deleted_records_stay_deleted(fleet: Fleet) -> None:
    """Also at a gateway that has the log open, and at one that opens it. Offsets continue where they were."""
    one, other, admin = fleet
    topic = fleet.create_topic()
    produce(one.bootstrap, topic, [Record(value) for value in values(20)])
    assert watermarks(other.bootstrap, topic) == (0, 20)
    delete_records(one.bootstrap, topic, 7)
    assert watermarks(one.bootstrap, topic) == (7, 20)
    wait_for(lambda: watermarks(other.bootstrap, topic) == (7, 20), "the other gateway looks where the log starts")
    delete_records(other.bootstrap, topic, 5)  # changes nothing
    admin.unload(partition_zero(topic))
    other.kill()
    other.start()
    other.wait_ready()
    assert watermarks(other.bootstrap, topic) == (7, 20)
    assert offsets_of(consume(other.bootstrap, topic, 13)) == [*range(7, 20)]
    delete_records(other.bootstrap, topic, OFFSET_END)
    assert produce(other.bootstrap, topic, [Record(b"next")]) == [20]
    other.stop()
    assert offsets_of(consume(one.bootstrap, topic, 1, offset=20)) == [20]
    wait_for(lambda: watermarks(one.bootstrap, topic) == (20, 21), "the gateway looks where the log starts")
    other.start()
    other.wait_ready()


@pytest.mark.timeout(300)
def test_after_a_pulsar_restart(rolling_pulsar: PulsarStandalone, rolling_gateway: GatewayProcess) -> None:
    topic = unique_topic("restart")
    create_topic(rolling_gateway.bootstrap, topic)
    expected = values(200)
    with assigned(rolling_gateway.bootstrap, topic) as consumer:
        first = produce(rolling_gateway.bootstrap, topic, [Record(value) for value in expected[:100]])
        assert offsets_of(take(consumer, 100)) == first
        rolling_pulsar.stop()
        rolling_pulsar.start()
        rolling_pulsar.wait_ready()
        second = produce(rolling_gateway.bootstrap, topic, [Record(value) for value in expected[100:]])
        assert first + second == [*range(200)]
        assert offsets_of(take(consumer, 100)) == second
    assert read_all(rolling_gateway.bootstrap, topic) == expected


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_while_the_topic_is_unloaded(
    pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str, idempotent: bool
) -> None:
    admin = Admin(pulsar)
    expected = values(3_000)
    sender = Sender(gateway.bootstrap, topic, enable_idempotence=idempotent, batch_num_messages=10, retry_backoff_ms=50)
    with assigned(gateway.bootstrap, topic) as consumer:
        for start in range(0, 3_000, 500):
            sender.send(expected[start : start + 500])
            wait_for(lambda: sender.acknowledged > start, "the first records are acknowledged, the others on their way")  # noqa: B023
            admin.unload(partition_zero(topic))
        sender.flush()
        assert offsets_of(take(consumer, 3_000)) == [*range(3_000)]
    read = read_all(gateway.bootstrap, topic)
    assert sender.errors == []
    sender.check_offsets(read)
    assert len(read) == 3_000, "each record once"
    if idempotent:
        assert read == expected
    assert len(admin.ledgers(partition_zero(topic))) > 1


def test_while_the_bundles_are_unloaded(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    expected = values(2_000)
    sender = Sender(gateway.bootstrap, topic, enable_idempotence=True, batch_num_messages=10, retry_backoff_ms=50)
    for start in range(0, 2_000, 500):
        sender.send(expected[start : start + 500])
        wait_for(lambda: sender.acknowledged > start, "the first records are acknowledged, the others on their way")  # noqa: B023
        for namespace in ("kafka/default", "kafka/default-gateway"):
            Admin(pulsar).call("PUT", f"namespaces/{namespace}/unload")
    sender.flush()
    assert sender.errors == []
    read = read_all(gateway.bootstrap, topic)
    assert read == expected
    sender.check_offsets(read)


@pytest.mark.parametrize("unloads", [0, 4])
def test_with_two_gateways_on_one_partition(fleet: Fleet, unloads: int) -> None:
    topic = fleet.create_topic()
    senders = [
        Sender(each.bootstrap, topic, enable_idempotence=True, batch_num_messages=5, retry_backoff_ms=50)
        for each in (fleet.one, fleet.other)
    ]
    threads = [
        threading.Thread(target=sender.send, args=(values(1_500, f"sender {number}"),))
        for number, sender in enumerate(senders)
    ]
    for thread in threads:
        thread.start()
    for _ in range(unloads):  # the first unloads happen while the first batches of the senders are in flight
        fleet.admin.unload(partition_zero(topic))
    for thread in threads:
        thread.join(TIMEOUT_S)
    for sender in senders:
        sender.flush()
    read = read_all(fleet.one.bootstrap, topic)
    assert read_all(fleet.other.bootstrap, topic) == read
    assert len(read) == len(set(read)) == 3_000, "each record once"
    for sender in senders:
        sender.check_offsets(read)
    for number in range(2):
        mine = [value for value in read if value.startswith(b"sender %d" % number)]
        assert mine == values(1_500, f"sender {number}")


def test_a_log_without_entries_knows_its_end(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """For the gateway that wrote them, and after its restart."""
    topic, namespace = unique_topic("offsets"), unique_topic("alone")
    admin = Admin(pulsar, f"kafka/{namespace}")
    with running(gateway_on(pulsar, tmp_path, pulsar={"namespace": namespace})) as gateway:
        create_topic(gateway.bootstrap, topic)
        produce(gateway.bootstrap, topic, [Record(value) for value in values(20)])
        admin.unload(partition_zero(topic))
        assert watermarks(gateway.bootstrap, topic) == (0, 20)
        admin.truncate(partition_zero(topic))
        wait_for(lambda: watermarks(gateway.bootstrap, topic) == (20, 20), "the start follows the truncation")
        gateway.stop()
        gateway.start()
        gateway.wait_ready()
        assert watermarks(gateway.bootstrap, topic) == (20, 20)
        assert produce(gateway.bootstrap, topic, [Record(b"next")]) == [20]
        assert produce(gateway.bootstrap, topic, [Record(b"next")]) == [21]
        assert offsets_of(consume(gateway.bootstrap, topic, 2)) == [20, 21]


def test_the_start_follows_what_has_expired(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    admin = Admin(pulsar)
    produce(gateway.bootstrap, topic, [Record(value) for value in values(20)])
    admin.unload(partition_zero(topic))
    assert produce(gateway.bootstrap, topic, [Record(value) for value in values(5)]) == [*range(20, 25)]
    admin.truncate(partition_zero(topic))
    wait_for(lambda: watermarks(gateway.bootstrap, topic) == (20, 25), "the start follows the truncation")
    assert offsets_of(consume(gateway.bootstrap, topic, 5)) == [*range(20, 25)]
    with assigned(gateway.bootstrap, topic, offset=3) as consumer:
        error = wait_for(lambda: consumer.poll(1.0), "the consumer hears of it").error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.timeout(300)
def test_entries_older_than_the_index_are_not_in_the_log(tmp_path: Path) -> None:
    old = PulsarStandalone(tmp_path / "pulsar", settings={"brokerEntryMetadataInterceptors": ""})
    topic = unique_topic("older")
    with running(old):
        admin = Admin(old)
        admin.call("PUT", "tenants/kafka", {"allowedClusters": ["standalone"]})
        admin.call(
            "PUT",
            "namespaces/kafka/default",
            {
                "inactive_topic_policies": {
                    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                    "maxInactiveDurationSeconds": 60,
                    "deleteWhileInactive": False,
                },
                "retention_policies": {"retentionTimeInMinutes": RETENTION_MINUTES, "retentionSizeInMB": -1},
            },
        )
        admin.create_partitioned(topic, 1)
        with producer(old, partition_zero(topic)) as writer:
            for value in values(10, "old"):
                writer.send(value)
    new = PulsarStandalone(tmp_path / "pulsar", broker_port=old.broker_port, http_port=old.http_port)
    with running(new):
        with running(gateway_on(new, tmp_path / "gateway")) as gateway:
            assert watermarks(gateway.bootstrap, topic) == (0, 0)
            assert produce(gateway.bootstrap, topic, [Record(value) for value in values(5)]) == [*range(5)]
            with producer(new, partition_zero(topic)) as writer:
                writer.send(b"value 5")
            assert read_all(gateway.bootstrap, topic) == values(6)
        with running(gateway_on(new, tmp_path / "next gateway")) as gateway:
            assert read_all(gateway.bootstrap, topic) == values(6)
            assert gateway.log_path.read_text().count("the log starts after older entries") == 1


@pytest.mark.timeout(300)
def test_a_search_by_time_finds_what_was_written_before_late_copies(tmp_path: Path) -> None:
    """Copies from another cluster keep the publish times of their source, and may come late."""
    now_ms = int(time.time() * 1000)
    hour_ago_ms = now_ms - 3_600_000
    settings = {"brokerEntryMetadataInterceptors": f"{INTERCEPTOR},{TIME_INTERCEPTOR}"}
    with (
        running(PulsarStandalone(tmp_path / "pulsar", settings=settings)) as server,
        running(gateway_on(server, tmp_path / "gateway", limits={"timestamp_scan_bytes": 1 << 20})) as gateway,
    ):
        topic = unique_topic("late")
        create_topic(gateway.bootstrap, topic)
        for time_ms in (now_ms, hour_ago_ms, now_ms):
            payload = encode_message(bytes(100_000), event_time_ms=time_ms)
            odd = Odd(payload, metadata={"publish_time": time_ms})
            asyncio.run(write(server, partition_zero(topic), [odd] * 20))
        with assigned(gateway.bootstrap, topic) as reader:
            [found] = reader.offsets_for_times([TopicPartition(topic, 0, now_ms - 1_800_000)], TIMEOUT_S)
        assert (found.error, found.offset) == (None, 0)
