"""A partition's log on a fake topic, with helpers of tests."""

from __future__ import annotations

import asyncio
from typing import cast

from gateway.config.limits import Limits
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from protocol.kafka.batch import iter_headers, parse_header
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic

Answers = list[tuple[int, Exception | None]]


def batch(count: int = 1, frame_bytes: int = 0) -> memoryview:
    data = encode_batch([Record(delta, 1_000, None, b"value", ()) for delta in range(count)])
    return memoryview(data + bytearray(frame_bytes))[: len(data)]


PLAIN = parse_header(batch())


class Scene:
    """A log on a fake topic."""

    def __init__(self) -> None:
        self.topic = FakeTopic()
        limits = Limits(refresh_timeout_ms=10_000)
        self.leads = True
        """No other gateway can be the leader."""
        pulsar, admin = cast(PulsarClient, self.topic), cast(AdminClient, self.topic)
        shared = Shared(pulsar, admin, limits, Metrics(), lambda: self.leads)
        self.log = PartitionLog("topic", shared, LogBounds(Position(-1, -1), 0, 0))

    @property
    def producer(self) -> FakeProducer:
        return self.topic.producers[-1]

    def append(self, count: int = 1, frame_bytes: int = 0) -> Answers:
        answers: Answers = []
        data = batch(count, frame_bytes)
        self.log.append(data, parse_header(data), 1, lambda offset, error: answers.append((offset, error)))
        return answers

    def offsets_read(self) -> list[tuple[int, int]]:
        found = self.log.reader.read(0, 1 << 20)
        assert found is not None
        return [
            (header.base_offset, header.last_offset) for chunk in found[0] for _, header in iter_headers(bytes(chunk))
        ]


async def answered(answers: Answers) -> tuple[int, Exception | None]:
    async with asyncio.timeout(5):
        while not answers:
            await asyncio.sleep(0.01)
    assert len(answers) == 1
    return answers[0]


async def append(scene: Scene, producer_id: int, sequence: int, source: int = 1) -> Answers:
    answers: Answers = []
    data = encode_batch(
        [Record(0, 1_000, None, b"value", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    header = parse_header(data)
    scene.log.append(memoryview(data), header, source, lambda offset, error: answers.append((offset, error)))
    await let_callbacks_run()
    return answers
