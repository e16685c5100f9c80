"""Batches of a Produce request that wait for their topic, their log or their turn are answered like all others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.config.limits import Limits
from gateway.handlers.records import produce
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from protocol.kafka.messages.records import ProduceRequest
from protocol.kafka.records import Record, encode_batch

TOPIC_ID_VERSION, NAME_VERSION = 13, 12
LOG_START, WRITTEN_AT = 7, 100
COMPACTED = {"cleanup.policy": "compact"}
OLD, NEW = uuid4(), uuid4()
MANY = 1_500
"""A thread decodes so many records."""


class Log:
    start, producers = SimpleNamespace(offset=LOG_START), None

    def __init__(self) -> None:
        self.appended = 0

    async def prepare(self, *_: Any) -> None: ...

    def ready_for(self, *_: Any) -> bool:
        return True

    def append(self, data: Any, header: Any, source: int, done: Callable[[int, None], None], messages: Any) -> bool:
        self.appended += 1
        done(WRITTEN_AT, None)
        return False


class Scene:
    """A topic that is known, and whose log is not open."""

    def __init__(self, configs: dict[str, str] | None = None) -> None:
        self.known = {"t": topic(OLD, configs)}
        self.logs: dict[int, Log] = {}
        self.openings = 0
        self.errors: list[ErrorCode] = []

    async def row(
        self, version: int, *records: Record, timeout_ms: int = 30_000, after_check: Topic | None = None
    ) -> Any:
        """The answer's row. ``after_check`` is the topic as it is known then."""
        named: dict[str, Any] = {"topic_id": OLD} if version >= TOPIC_ID_VERSION else {"name": "t"}
        data = [ProducedPartition(index=0, records=memoryview(encode_batch([*records])))]
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=timeout_ms,
            topic_data=[ProducedTopic(partition_data=data, **named)],
        )  # fmt: skip
        reply = produce.handle(cast(Any, self._call(version, request)))
        if after_check is not None:
            self.known["t"] = after_check
        answer = cast(Any, await reply.result())
        return answer.responses[0].partition_responses[0]

    def _call(self, version: int, request: ProduceRequest) -> Any:
        topics = SimpleNamespace(cached=self.known.get, get=self._get, cached_name=lambda _: "t")
        cluster = SimpleNamespace(
            topics=topics, logs=SimpleNamespace(find=self._find, open=self._open, decoding=self),
            fleet=SimpleNamespace(leads=lambda *_: True, epoch=1, role=lambda *_: PartitionRole.LEADING),
            config=SimpleNamespace(limits=Limits()), openings_ahead=SimpleNamespace(needed=lambda *_: None),
        )  # fmt: skip
        client = SimpleNamespace(number=1, address="a", refused=RefusedBatches(), arrived_s=0.0)
        return SimpleNamespace(
            request=request, version=version, client_id="c", cluster=cluster, topics=topics, client=client,
            count_error=self.errors.append, started=time.perf_counter(),
        )  # fmt: skip

    async def run(self, decode: Callable[[], Any], source: int) -> Any:
        await asyncio.sleep(0)
        return decode()

    async def _get(self, name: str) -> Topic | None:
        await asyncio.sleep(0)
        return self.known.get(name)

    def _find(self, name: str, index: int) -> Log | None:
        return self.logs.get(index)

    async def _open(self, topic: Topic, index: int, **_: Any) -> Log:
        await asyncio.sleep(0)
        self.openings += 1
        return self.logs.setdefault(index, Log())


def topic(topic_id: UUID, configs: dict[str, str] | None = None) -> Topic:
    return Topic("t", "persistent://t/n/t", topic_id, 1, True, configs or {}, time.monotonic())


def without_key(offset: int) -> Record:
    """What a compacted topic refuses."""
    return Record(offset, 0, None, b"v", ())


@pytest.mark.parametrize("check_s", [1.0, 0.0])
@pytest.mark.parametrize("records", [1, MANY])
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_refused_batch_is_answered_with_the_log_start_offset(
    monkeypatch: pytest.MonkeyPatch, check_s: float, records: int, is_open: bool, is_known: bool
) -> None:
    monkeypatch.setattr(produce, "CHECK_S", check_s)
    scene = Scene(COMPACTED)
    later = None if is_known else scene.known.pop("t")
    if is_open:
        scene.logs[0] = Log()
    row = await scene.row(NAME_VERSION, *map(without_key, range(records)), after_check=later)
    assert (row.error_code, row.log_start_offset) == (ErrorCode.INVALID_RECORD, LOG_START)
    assert row.record_errors and scene.errors == [ErrorCode.INVALID_RECORD]
    assert scene.openings == (not is_open)


async def test_a_refused_batch_keeps_its_error_if_its_log_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "MIN_TIMEOUT_S", 0)
    scene = Scene(COMPACTED)
    row = await scene.row(NAME_VERSION, without_key(0), timeout_ms=0)
    assert (row.error_code, row.log_start_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert scene.errors == [ErrorCode.INVALID_RECORD]


async def test_no_batch_goes_to_a_topic_that_was_made_anew_after_the_check() -> None:
    scene = Scene()
    row = await scene.row(TOPIC_ID_VERSION, without_key(0), after_check=topic(NEW))
    assert (row.error_code, row.base_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert not scene.logs


async def test_a_batch_is_checked_for_the_topic_that_was_made_anew() -> None:
    row = await Scene().row(NAME_VERSION, without_key(0), after_check=topic(NEW, COMPACTED))
    assert row.error_code == ErrorCode.INVALID_RECORD
    row = await Scene().row(NAME_VERSION, without_key(0), after_check=topic(NEW))
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, WRITTEN_AT)
