"""Logs that are opened anew because Pulsar does not answer what was sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gateway.config import Limits
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import RequestTimeoutError
from gateway.storage import opening, partition_log, writer
from gateway.storage.errors import KafkaError, error_code
from gateway.storage.partition_log import PartitionLog
from gateway.storage.registry import LogRegistry
from gateway.storage.shared import Shared
from gateway.storage.topics import Topic
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.storage.fake_pulsar import FakeProducer, FakeTopic

TOPIC = cast(Topic, SimpleNamespace(name="topic", pulsar_topic=lambda partition: "topic", compacts=False))
DATA = memoryview(encode_batch([Record(0, 1_000, None, b"value", ())]))
HEADER = parse_header(DATA)

Answers = list[tuple[int, Exception | None]]


class DeafProducer(FakeProducer):
    """Of a broker that does not answer, and so does not confirm that it has forgotten the producer."""

    async def close(self) -> None:
        self.closed = True
        raise RequestTimeoutError("no answer")


class Scene:
    def __init__(self) -> None:
        self.topic = FakeTopic()
        shared = Shared(cast(PulsarClient, self.topic), cast(AdminClient, self.topic), Limits(), Metrics())
        self.registry = LogRegistry(shared)

    async def open(self) -> PartitionLog:
        opened = await self.registry.open(TOPIC, 0)
        await opened.prepare(HEADER, 1)
        return opened

    async def append(self) -> Answers:
        opened, answers = await self.open(), Answers()
        opened.append(DATA, HEADER, 1, lambda offset, error: answers.append((offset, error)))
        return answers


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(writer, "SETTLE_S", 0)
    monkeypatch.setattr(opening, "SETTLE_S", 0)
    return Scene()


async def test_a_log_without_answers_is_opened_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.topic.producer_class = DeafProducer
    first, answers = await scene.open(), await scene.append()
    await scene.registry.close_stalled()
    assert not first.closed  # it has had no time yet
    monkeypatch.setattr(partition_log, "STALLED_S", -1)
    await scene.registry.close_stalled()
    [(_, error)] = answers
    assert isinstance(error, KafkaError) and error_code(error) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await scene.open() is not first
    names = {producer.name for producer in scene.topic.producers}
    assert (len(scene.topic.producers), len(names)) == (2, 1)  # the broker has to let go of the first one


async def test_a_log_that_has_nothing_to_wait_for_stays(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "STALLED_S", -1)
    opened = await scene.open()
    await scene.registry.close_stalled()
    assert not opened.closed


async def test_a_producer_that_was_closed_in_order_needs_no_successor(scene: Scene) -> None:
    await (await scene.open()).close()
    await scene.open()
    assert len({producer.name for producer in scene.topic.producers}) == 2


async def test_a_log_whose_leader_changed_meanwhile_is_closed_though_it_leads_again(scene: Scene) -> None:
    """Another gateway may have written for its producers."""
    first = await scene.open()
    scene.registry.start_closing(lambda topic, partition: True)
    assert scene.registry.find("topic", 0) is None
    await scene.registry.close_those(lambda topic, partition: False)
    assert first.closed
    assert await scene.open() is not first
