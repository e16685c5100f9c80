"""Transactions of `transaction.version` 2 (KIP-890): no partition is added beforehand, and each end raises the epoch.

The expected responses are those of Apache Kafka 4.2.0. With KAFKA_4=host:port the test runs on a Kafka, to prove them.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.conformance.records import TRANSACTIONAL, batch, records
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields
from tests.integration.native import wait_for
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED = 0, 47, 48, 90
INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE = 49, 51, 120
NOT_READY = {14, 15, 16, CONCURRENT_TRANSACTIONS}
WITHIN_S = 60.0
TIMEOUT_MS = 60_000
FOR_EVER_MS = str(2**63 - 1)


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Client:
    """A transactional producer with the newest versions."""

    def __init__(self, bootstrap: str) -> None:
        self.raw = RawClient(bootstrap)
        self.transactional_id = str(uuid.uuid4())
        self.topic = unique_topic("newer-transactions")
        configs = [{"name": "segment.ms", "value": FOR_EVER_MS}]  # the records are years old, markers are new
        wanted = {"name": self.topic, "num_partitions": 2, "replication_factor": 1, "assignments": []}
        (made,) = self.raw.call(
            "CreateTopics", 7, topics=[wanted | {"configs": configs}], timeout_ms=10_000, validate_only=False
        )["topics"]
        assert made["error_code"] == NONE
        wait_for(self._is_led, "the topic has leaders")

    def _is_led(self) -> bool:
        asked = [{"name": self.topic, "partitions": [{"partition_index": at, "timestamp": -1} for at in range(2)]}]
        (found,) = self.raw.call("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=asked)["topics"]
        return not any(row["error_code"] for row in found["partitions"])

    def init(self) -> Identity:
        fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
        answer = _when_ready(lambda: self.raw.call("InitProducerId", 5, **fields, producer_id=-1, producer_epoch=-1))
        assert answer["error_code"] == NONE
        return Identity(answer["producer_id"], answer["producer_epoch"])

    def produce(self, who: Identity, sequence: int, count: int = 2, partition: int = 0) -> tuple[int, int]:
        """Error and base offset."""
        data = batch(records(count), attributes=TRANSACTIONAL, producer=(*who, sequence))
        fields = produce_fields(12, {self.topic: {partition: data}}, transactional_id=self.transactional_id)

        def ask() -> Any:
            return self.raw.call("Produce", 12, **fields)["responses"][0]["partition_responses"][0]

        row = _when_ready(ask)
        return row["error_code"], row["base_offset"]

    def end(self, who: Identity, *, committed: bool) -> tuple[int, Identity]:
        fields = {"transactional_id": self.transactional_id, "committed": committed}
        asked = {"producer_id": who.producer_id, "producer_epoch": who.epoch}
        answer = _when_ready(lambda: self.raw.call("EndTxn", 5, **fields, **asked))
        return answer["error_code"], Identity(answer["producer_id"], answer["producer_epoch"])

    def commit_offset(self, who: Identity, group: str, offset: int) -> int:
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": self.topic, "partitions": [row]}]
        fields = {"transactional_id": self.transactional_id, "group_id": group, "topics": topics}
        asked = {"producer_id": who.producer_id, "producer_epoch": who.epoch}

        def ask() -> Any:
            return self.raw.call("TxnOffsetCommit", 5, **fields, **asked)["topics"][0]["partitions"][0]

        return int(_when_ready(ask)["error_code"])

    def committed_offset(self, group: str) -> int:
        asked = [{"name": self.topic, "partition_indexes": [0]}]

        def ask() -> Any:
            answer = self.raw.call("OffsetFetch", 7, group_id=group, topics=asked, require_stable=True)
            return answer["topics"][0]["partitions"][0] if answer["topics"] else answer

        row = _when_ready(ask, {*NOT_READY, 88})
        return int(row["committed_offset"])

    def aborted(self, partition: int = 0) -> list[int]:
        """The first offsets of aborted transactions, when all transactions have ended."""
        parts = [fetch_partition(11, partition, 0)]
        fields = fetch_fields(11, [{"topic": self.topic, "partitions": parts}], isolation_level=1)

        def ask() -> Any:
            return self.raw.call("Fetch", 11, **fields)["responses"][0]["partitions"][0]

        row: dict[str, Any] = {}

        def decided() -> bool:
            row.update(ask())
            return bool(row["last_stable_offset"] == row["high_watermark"])

        wait_for(decided, "all is decided")
        return [each["first_offset"] for each in row["aborted_transactions"] or []]


def _when_ready(ask: Callable[[], Any], waits: set[int] = NOT_READY) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while (answer := ask())["error_code"] in waits and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(os.environ.get("KAFKA_4") or request.getfixturevalue("gateway").bootstrap)
    group = {"key": made.transactional_id, "key_type": 1}
    _when_ready(lambda: made.raw.call("FindCoordinator", 3, **group))
    yield made
    made.raw.close()


def test_partitions_are_added_by_what_is_written(client: Client) -> None:
    first = client.init()
    assert client.produce(first, 0) == (NONE, 0)
    assert client.produce(first, 2) == (NONE, 2)
    assert client.produce(first, 0, partition=1) == (NONE, 0)
    error, second = client.end(first, committed=True)
    assert (error, second) == (NONE, Identity(first.producer_id, first.epoch + 1))
    assert client.produce(second, 0) == (NONE, 5)
    error, third = client.end(second, committed=False)
    assert (error, third) == (NONE, Identity(first.producer_id, first.epoch + 2))
    assert client.aborted() == [5]


def test_a_repeated_end_has_the_same_response(client: Client) -> None:
    first = client.init()
    client.produce(first, 0)
    ended = client.end(first, committed=True)
    assert client.end(first, committed=True) == ended
    assert client.end(first, committed=False)[0] == INVALID_TXN_STATE


def test_an_epoch_of_the_past_is_fenced(client: Client) -> None:
    """Also that of the producer's own last transaction: a late batch cannot join the next one."""
    first = client.init()
    client.produce(first, 0)
    _, second = client.end(first, committed=True)
    client.produce(second, 0)
    assert client.produce(first, 2)[0] == INVALID_PRODUCER_EPOCH
    _, third = client.end(second, committed=True)
    assert client.end(first, committed=True)[0] == PRODUCER_FENCED
    assert client.end(third, committed=True)[0] == INVALID_TXN_STATE


def test_an_abort_without_partitions_gives_the_next_epoch(client: Client) -> None:
    first = client.init()
    error, second = client.end(first, committed=False)
    assert (error, second) == (NONE, Identity(first.producer_id, first.epoch + 1))
    assert client.produce(second, 0) == (NONE, 0)


def test_offsets_are_added_by_their_commit(client: Client) -> None:
    group = str(uuid.uuid4())
    _when_ready(lambda: client.raw.call("FindCoordinator", 3, key=group, key_type=0))
    first = client.init()
    assert client.commit_offset(first, group, 7) == NONE
    _, second = client.end(first, committed=True)
    assert client.committed_offset(group) == 7
    assert client.commit_offset(second, group, 9) == NONE
    client.end(second, committed=False)
    assert client.committed_offset(group) == 7


def test_foreign_producers_are_refused(client: Client) -> None:
    first = client.init()
    assert client.produce(Identity(2**62, 0), 0)[0] == INVALID_PRODUCER_ID_MAPPING
    assert client.produce(Identity(first.producer_id, first.epoch + 5), 0)[0] == INVALID_PRODUCER_EPOCH
    assert client.end(Identity(2**62, 0), committed=True)[0] == INVALID_PRODUCER_ID_MAPPING
    assert client.end(Identity(first.producer_id, first.epoch + 5), committed=True)[0] == PRODUCER_FENCED
