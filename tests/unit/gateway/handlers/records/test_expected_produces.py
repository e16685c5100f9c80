"""What is begun for a Produce request that waits for an earlier one of its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.errors import KafkaError
from gateway.handlers.records import expected_produces
from gateway.handlers.records.expected_produces import ExpectedProduces
from gateway.requests.policy import ALL_ALLOWED, AllAllowed
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run

RECORDS = [Record(0, 1_000, None, b"value", ())]
PLAIN = bytes(encode_batch(RECORDS))
IDEMPOTENT = bytes(encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0))
TRANSACTIONAL = bytes(encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))


class Nothing(AllAllowed):
    def allows(self, *_: object) -> bool:
        return False


class FakeGateway:
    """The cluster of a call: topics, logs and fleet. It leads partitions 0 and 1 of the topic `t`, which has three."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []
        self.prepared: list[int] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.ready = False
        self.role_now = PartitionRole.LEADING
        self.failure: Exception | None = None
        self.topics = self.logs = self.fleet = self.log = self.openings_ahead = self
        self.needed_by_producers: list[int] = []
        self.number, self.arrived_s, self.epoch = 5, 3.0, 1

    def cached(self, name: str) -> Any:
        return SimpleNamespace(name=name, partitions=3) if name in {"t", "__consumer_offsets"} else None

    def cached_name(self, topic_id: object) -> str | None:
        return "t" if topic_id == "id of t" else None

    def find(self, name: str, index: int) -> Any:
        return self if self.ready else None

    def ready_for(self, header: Any, source: int, arrived_s: float) -> bool:
        return True

    def leads(self, name: str, index: int) -> bool:
        return index < 2

    def needed(self, topic: Any, index: int, fleet: Any, logs: Any) -> None:
        self.needed_by_producers.append(index)

    def role(self, name: str, index: int) -> PartitionRole:
        return self.role_now

    async def open(self, topic: Any, index: int, *, urgent: bool) -> Any:
        assert urgent
        self.opened.append((topic.name, index))
        await self.may_open.wait()
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(prepare=self._prepare)

    async def _prepare(self, header: Any, source: int, arrived_s: float) -> None:
        assert (source, arrived_s) == (5, 3.0)
        self.prepared.append(header.producer_id)

    def call(self, *batches: tuple[str, int, bytes | None], policy: Any = ALL_ALLOWED, topic_id: Any = None) -> Any:
        topics = []
        for name, index, records in batches:
            rows = [ProducedPartition(index=index, records=cast(Any, records))]
            topics.append(ProducedTopic(name=name, topic_id=topic_id, partition_data=rows))
        request = SimpleNamespace(topic_data=topics, timeout_ms=30_000)
        context = SimpleNamespace(policy=policy)
        return cast(Any, SimpleNamespace(request=request, cluster=self, client=self, context=context, version=9))


async def expect(gateway: FakeGateway, call: Any) -> ExpectedProduces:
    expected = ExpectedProduces()
    expected.expect(call)
    await let_callbacks_run()
    return expected


async def test_the_logs_of_all_its_partitions_are_opened_side_by_side() -> None:
    gateway = FakeGateway()
    gateway.may_open.clear()
    await expect(gateway, gateway.call(("t", 0, _view(PLAIN)), ("t", 1, _view(IDEMPOTENT))))
    assert gateway.opened == [("t", 0), ("t", 1)]
    gateway.may_open.set()
    await let_callbacks_run()
    assert gateway.prepared == [-1, 7]
    assert gateway.needed_by_producers == [1]


async def test_a_topic_may_be_given_by_its_id() -> None:
    gateway = FakeGateway()
    await expect(gateway, gateway.call(("", 0, _view(PLAIN)), topic_id="id of t"))
    assert gateway.opened == [("t", 0)]


@pytest.mark.parametrize(
    "batch",
    [
        ("unknown", 0, PLAIN), ("", 0, PLAIN), ("__consumer_offsets", 0, PLAIN), ("t", 2, PLAIN), ("t", 3, PLAIN),
        ("t", -1, PLAIN), ("t", 0, None), ("t", 0, b"garbage"), ("t", 0, TRANSACTIONAL),
    ],
)  # fmt: skip
async def test_what_is_not_prepared(batch: tuple[str, int, bytes | None]) -> None:
    name, index, records = batch
    gateway = FakeGateway()
    await expect(gateway, gateway.call((name, index, _view(records))))
    assert gateway.opened == []


async def test_nothing_is_prepared_without_the_right_to_write() -> None:
    gateway = FakeGateway()
    await expect(gateway, gateway.call(("t", 0, _view(PLAIN)), policy=Nothing()))
    assert gateway.opened == []


async def test_a_log_that_is_ready_needs_no_preparation() -> None:
    gateway = FakeGateway()
    gateway.ready = True
    await expect(gateway, gateway.call(("t", 0, _view(PLAIN))))
    assert gateway.opened == []


async def test_producers_are_not_read_while_the_previous_leader_may_write() -> None:
    gateway = FakeGateway()
    gateway.role_now = next(role for role in PartitionRole if role is not PartitionRole.LEADING)
    await expect(gateway, gateway.call(("t", 0, _view(IDEMPOTENT)), ("t", 1, _view(PLAIN))))
    assert gateway.opened == [("t", 0), ("t", 1)]
    assert gateway.prepared == [-1]


async def test_a_bounded_number_of_partitions_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_produces, "MAX_PREPARATIONS", 1)
    gateway = FakeGateway()
    gateway.may_open.clear()
    await expect(gateway, gateway.call(("t", 0, _view(PLAIN)), ("t", 1, _view(PLAIN))))
    assert gateway.opened == [("t", 0)]


async def test_failures_are_left_to_the_request() -> None:
    gateway = FakeGateway()
    gateway.failure = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    expected = await expect(gateway, gateway.call(("t", 0, _view(PLAIN))))
    assert gateway.opened == [("t", 0)]
    assert not expected._tasks


async def test_nothing_is_left_when_the_client_has_disconnected() -> None:
    gateway = FakeGateway()
    gateway.may_open.clear()
    expected = await expect(gateway, gateway.call(("t", 0, _view(PLAIN))))
    expected.close()
    await let_callbacks_run()
    assert not expected._tasks


def _view(records: bytes | None) -> Any:
    return None if records is None else memoryview(records)
