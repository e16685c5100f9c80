"""Pulsar's own transactions in topics of Kafka clients: these see committed messages only, at offsets that stay.

Pulsar dispatches nothing behind an open transaction. Markers and aborted messages have offsets, but are never seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record as BatchRecord
from protocol.kafka.records import encode_batch
from tests.integration.confluent import TIMEOUT_S, Record, assigned, consume, create_topic, produce, take, watermarks
from tests.integration.native import Admin, wait_for
from tests.integration.native_transactions import COORDINATOR, NativeTransactions
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

NAMESPACE = "transactions"
ISOLATION = ("read_uncommitted", "read_committed")
HELD_BACK_S = 3.0
"""Longer than readers wait before they look whether anything will arrive."""
START_AGE_S = 1.5
"""After this time the start of a log is looked up again."""
EVENT_MS = 1_600_000_000_000
PRODUCER_ID = 77
ROUNDS = 20
RETRIABLE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE}


@pytest.fixture(scope="module")
def coordinating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    with running(PulsarStandalone(tmp_path_factory.mktemp("coordinating"), settings=COORDINATOR)) as server:
        yield server


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native-transactions")


@pytest.fixture(scope="module")
def serving(coordinating: PulsarStandalone, work_dir: Path) -> Iterator[GatewayProcess]:
    with running(gateway_on(coordinating, work_dir, pulsar={"namespace": NAMESPACE})) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def native(coordinating: PulsarStandalone, serving: GatewayProcess, work_dir: Path) -> Iterator[NativeTransactions]:
    with NativeTransactions(coordinating, f"kafka/{NAMESPACE}", work_dir / "native.log") as client:
        yield client


@pytest.fixture
def topic(serving: GatewayProcess) -> str:
    name = unique_topic("transactions")
    create_topic(serving.bootstrap, name, 2)
    return name


def kafka(serving: GatewayProcess, topic: str, value: str, **options: Any) -> int:
    (offset,) = produce(serving.bootstrap, topic, [Record(value.encode())], **options)
    return offset


def values_of(messages: Sequence[Message]) -> dict[int, str]:
    """By offset, in the order of arrival."""
    return {message.offset() or 0: (message.value() or b"").decode() for message in messages}


def seen(serving: GatewayProcess, topic: str, count: int, isolation: str, partition: int = 0) -> dict[int, str]:
    return values_of(consume(serving.bootstrap, topic, count, partition=partition, isolation_level=isolation))


def restart(serving: GatewayProcess) -> None:
    serving.stop()
    serving.start()
    serving.wait_ready()


def check(serving: GatewayProcess, topic: str, values: dict[int, str], end: int | None = None) -> None:
    """Both isolation levels see exactly these values at these offsets, by time too, and the log ends at ``end``."""
    for isolation in ISOLATION:
        assert seen(serving, topic, len(values), isolation) == values
        low, high = watermarks(serving.bootstrap, topic, isolation_level=isolation)
        assert low <= min(values, default=0)
        assert high > max(values, default=-1) if end is None else high == end
    with assigned(serving.bootstrap, topic) as reader:
        times = [TopicPartition(topic, 0, 1), TopicPartition(topic, 0, 2**60)]
        found = [reader.offsets_for_times([each], TIMEOUT_S)[0] for each in times]
        assert [each.offset for each in found] == [min(values, default=-1), -1]


def mixed(serving: GatewayProcess, native: NativeTransactions, topic: str) -> dict[int, str]:
    """Write to the topic; returns what is seen of it."""
    native.begin("a", "b", "c")
    native.send(topic, "n0")
    native.send(topic, "a1", "a")
    native.send(topic, "b2", "b")
    native.abort("b")  # 3
    native.send(topic, "a4", "a")
    native.send(topic, "n5")
    native.commit("a")  # 6
    assert kafka(serving, topic, "k7") == 7
    native.send(topic, "c8", "c")
    native.abort("c")  # 9
    assert kafka(serving, topic, "k10", enable_idempotence=True) == 10
    return {0: "n0", 1: "a1", 4: "a4", 5: "n5", 7: "k7", 10: "k10"}


def test_ended_transactions(serving: GatewayProcess, native: NativeTransactions, topic: str) -> None:
    with assigned(serving.bootstrap, topic) as live:
        values = mixed(serving, native, topic)
        assert values_of(take(live, len(values))) == values
    check(serving, topic, values)
    restart(serving)
    check(serving, topic, values)


def test_the_log_ends_with_an_aborted_transaction(
    serving: GatewayProcess, native: NativeTransactions, topic: str
) -> None:
    values = {0: "k0"}
    assert kafka(serving, topic, "k0") == 0
    native.begin("a")
    native.send(topic, "a1", "a")
    native.send(topic, "a2", "a")
    native.abort("a")
    check(serving, topic, values)
    restart(serving)
    check(serving, topic, values)
    assert kafka(serving, topic, "k4", enable_idempotence=True) == 4
    check(serving, topic, values | {4: "k4"})


def test_a_log_of_an_aborted_transaction(serving: GatewayProcess, native: NativeTransactions, topic: str) -> None:
    native.begin("a")
    native.send(topic, "a0", "a")
    native.abort("a")
    check(serving, topic, {})
    restart(serving)
    check(serving, topic, {})
    assert kafka(serving, topic, "k2", enable_idempotence=True) == 2
    check(serving, topic, {2: "k2"})


def test_an_open_transaction_holds_back_what_follows(
    serving: GatewayProcess, native: NativeTransactions, topic: str
) -> None:
    """Writes are acknowledged, readers wait, and the end that clients see stays before the transaction."""
    assert kafka(serving, topic, "k0") == 0
    native.begin("a", "b")
    native.send(topic, "a1", "a")
    assert kafka(serving, topic, "k2", enable_idempotence=True) == 2
    assert kafka(serving, topic, "k3") == 3
    native.send(topic, "b4", "b")
    assert kafka(serving, topic, "k5") == 5
    check(serving, topic, {0: "k0"}, end=1)
    assert kafka(serving, topic, "other", partition=1) == 0
    assert seen(serving, topic, 1, ISOLATION[0], partition=1) == {0: "other"}
    with assigned(serving.bootstrap, topic, offset=1) as live, assigned(serving.bootstrap, topic, offset=5) as ahead:
        assert live.poll(HELD_BACK_S) is None
        assert ahead.poll(0) is None, "its offset is known, because the gateway wrote it"
        native.commit("a")
        assert values_of(take(live, 3)) == {1: "a1", 2: "k2", 3: "k3"}
        check(serving, topic, {0: "k0", 1: "a1", 2: "k2", 3: "k3"}, end=4)
        native.abort("b")
        assert values_of(take(live, 1)) == {5: "k5"}
        assert values_of(take(ahead, 1)) == {5: "k5"}
    check(serving, topic, {0: "k0", 1: "a1", 2: "k2", 3: "k3", 5: "k5"})


def test_a_log_begins_with_an_open_transaction(
    coordinating: PulsarStandalone, serving: GatewayProcess, native: NativeTransactions, topic: str
) -> None:
    """Also if all its entries are in closed ledgers: Pulsar's own number of the next offset is behind them."""
    native.begin("a")
    native.send(topic, "a0", "a")
    assert kafka(serving, topic, "k1", enable_idempotence=True) == 1
    Admin(coordinating, f"kafka/{NAMESPACE}").unload(f"{topic}-partition-0")
    restart(serving)
    assert kafka(serving, topic, "k2") == 2
    time.sleep(START_AGE_S)
    check(serving, topic, {}, end=0)
    with assigned(serving.bootstrap, topic) as live:
        assert live.poll(HELD_BACK_S) is None
        native.abort("a")
        assert values_of(take(live, 2)) == {1: "k1", 2: "k2"}
    check(serving, topic, {1: "k1", 2: "k2"})


def test_another_leader_knows_what_is_held_back(
    serving: GatewayProcess, native: NativeTransactions, topic: str
) -> None:
    """A retry of an idempotent producer is recognized, though no reader gets what it wrote before."""
    assert kafka(serving, topic, "k0") == 0
    native.begin("a")
    native.send(topic, "a1", "a")
    assert send_again(serving, topic, sequence=0) == (0, 2)
    check(serving, topic, {0: "k0"}, end=1)
    restart(serving)
    check(serving, topic, {0: "k0"}, end=1)
    assert send_again(serving, topic, sequence=0) == (0, 2)
    assert send_again(serving, topic, sequence=1) == (0, 3)
    native.commit("a")
    check(serving, topic, {0: "k0", 1: "a1", 2: "again 0", 3: "again 1"})


def send_again(serving: GatewayProcess, topic: str, sequence: int) -> tuple[int, int]:
    """Write a batch of one idempotent producer over a new connection. Returns the error and the base offset."""
    record = BatchRecord(0, EVENT_MS, None, b"again %d" % sequence)
    data = bytes(encode_batch([record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence))
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]

    def written() -> tuple[int, int] | None:
        with connected(serving.bootstrap) as client:
            answer = client.call("Produce", 7, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=rows)
        (found,) = answer["responses"][0]["partition_responses"]
        error, offset = found["error_code"], found["base_offset"]
        return None if error in RETRIABLE else (error, offset)

    found: tuple[int, int] = wait_for(written, "the batch is answered")
    return found


@pytest.mark.parametrize("isolation", ISOLATION)
def test_many_transactions_do_not_hold_up_readers(
    serving: GatewayProcess, native: NativeTransactions, topic: str, isolation: str
) -> None:
    """Each leaves a gap. Kafka's writes are between them."""
    values: dict[int, str] = {}
    with assigned(serving.bootstrap, topic, isolation_level=isolation) as live:
        for number in range(ROUNDS):
            native.begin("a")
            native.send(topic, f"a{number}", "a")
            if number % 2:
                native.abort("a")
            else:
                native.commit("a")
                values[3 * number] = f"a{number}"
            assert kafka(serving, topic, f"k{number}") == 3 * number + 2
            values[3 * number + 2] = f"k{number}"
        assert values_of(take(live, len(values))) == values
    check(serving, topic, values)
