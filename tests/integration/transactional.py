"""Transactions by confluent-kafka (librdkafka), step by step."""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.support.raw_client import ConnectionClosedError, connected

ENDING = ["PrepareCommit", "PrepareAbort"]


class Transactions:
    """One transactional producer."""

    def __init__(self, bootstrap: str, transactional_id: str, **config: Any) -> None:
        options = {name.replace("_", "."): value for name, value in config.items()}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1,
                # By default 60 s: on a busy machine, a restart of the gateway takes longer, and would abort it.
                "transaction.timeout.ms": 600_000, **options,
            }
        )  # fmt: skip
        self._producer.init_transactions(TIMEOUT_S)
        self._producer.begin_transaction()

    def write(self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        """Write the values. When it returns, they are stored."""
        failed: list[KafkaError] = []
        for value in values:
            self._producer.produce(
                topic, value, key, partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not failed, failed

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)
        self._producer.begin_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)
        self._producer.begin_transaction()


def read(
    bootstrap: str, topic: str, *, committed: bool = True, start: int = OFFSET_BEGINNING, partition: int = 0
) -> list[bytes | None]:
    """All values to the end of the partition as a consumer with this isolation level sees it."""
    return [value for _, value in read_pairs(bootstrap, topic, committed=committed, start=start, partition=partition)]


def read_pairs(
    bootstrap: str, topic: str, *, committed: bool = True, start: int = OFFSET_BEGINNING, partition: int = 0
) -> list[tuple[bytes | None, bytes | None]]:
    """As ``read``, with their keys."""
    await_markers(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False,
            "auto.offset.reset": "error", "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )  # fmt: skip
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of the partition after {found[-3:]}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((message.key(), message.value()))
    finally:
        consumer.close()


def transaction_state(bootstrap: str, transactional_id: str) -> str:
    """Its state as the coordinator describes it, in a cluster of one server."""
    with connected(bootstrap) as client:
        [row] = client.call("DescribeTransactions", 0, transactional_ids=[transactional_id])["transaction_states"]
    assert row["error_code"] == 0, row
    found: str = row["transaction_state"]
    return found


def await_markers(bootstrap: str, topic: str | None = None) -> None:
    """Wait until no transaction of the cluster lacks markers: they are written after the response to EndTxn.

    With ``topic``, only those that have written to it. Another test may have left one that never ends on its server.
    """
    with connected(bootstrap.partition(",")[0]) as client:
        nodes = client.call("Metadata", 9, topics=[])["brokers"]
    for node in nodes:
        wait_for(partial(_has_all_markers, f"{node['host']}:{node['port']}", topic), "the markers are written")


def _has_all_markers(broker: str, topic: str | None) -> bool:
    """False also while a load balancer has not found the broker again."""
    try:
        with connected(broker) as client:
            answer = client.call("ListTransactions", 0, state_filters=ENDING, producer_id_filters=[])
            ids = [row["transactional_id"] for row in answer["transaction_states"]]
            if answer["error_code"] or not ids or topic is None:
                return answer["error_code"] == 0 and not ids
            ending = client.call("DescribeTransactions", 0, transactional_ids=ids)["transaction_states"]
    except ConnectionClosedError:
        return False
    return not any(row["topic"] == topic for each in ending for row in each["topics"])
