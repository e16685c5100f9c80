"""One appender, and what it uses and reports to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.config.limits import MIB, Limits
from gateway.log.writing.appender import Appender
from gateway.log.writing.pending_batch import PendingBatch, SentEntry
from gateway.log.writing.producer_state import SequencedBatch
from gateway.observability.metrics import Metrics
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import MessageTooLargeError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.send_window import SendWindow


class FakeProducer:
    def __init__(self, max_message_bytes: int = 5 * MIB, window: SendWindow | None = None) -> None:
        self.name, self.closed, self.max_message_bytes = "fake", False, max_message_bytes
        self.errors: list[PulsarError] = []
        self.connection = SimpleNamespace(
            writable=True, writable_event=asyncio.Event(), send_window=window, close=self.errors.append,
            state=ConnectionState.READY,
        )  # fmt: skip
        self.before_flush = asyncio.get_running_loop().call_soon
        self.sent: list[bytes] = []
        self.conditions: list[Callable[[], bool] | None] = []

    def send(self, chunks: Sequence[Any], *, only_if: Callable[[], bool] | None, **_: object) -> int:
        data = b"".join(map(bytes, chunks))
        if len(data) > self.max_message_bytes:
            raise MessageTooLargeError("too large")
        self.sent.append(data)
        self.conditions.append(only_if)
        return len(self.sent) - 1

    async def close(self) -> None:
        self.closed = True


class FakeLog:
    def __init__(self, **limits: int) -> None:
        self.limits, self.metrics = Limits(**limits), Metrics()
        self.written: list[bytes] = []
        self.refused: list[bytes] = []
        self.errors: list[Exception] = []
        self.leads = True

    def may_send_idempotent(self) -> bool:
        return self.leads

    def entry_written(self, sent: SentEntry, position: Position) -> None:
        self.written += [bytes(batch.data) for batch in sent.batches]

    def entry_refused(self, sent: SentEntry, error: Exception) -> None:
        self.refused += [bytes(batch.data) for batch in sent.batches]
        self.errors.append(error)

    def producer_lost(self, error: PulsarError) -> None:
        pass


class Scene:
    def __init__(self, max_message_bytes: int = 5 * MIB, window: SendWindow | None = None, **limits: int) -> None:
        self.window = window
        self.log = FakeLog(**limits)
        self.appender = Appender(self.log.limits, self.log.metrics, self.log.may_send_idempotent, self.log)
        self.producer = FakeProducer(max_message_bytes, window)
        self.appender.use(cast(Producer, self.producer))
        self.confirmed = 0

    def append(self, *batches: bytes, producer_id: int | None = None, count: int = 1) -> None:
        """`count` is the number of records of each."""
        sequenced = None if producer_id is None else cast(SequencedBatch, SimpleNamespace(producer_id=producer_id))
        for data in batches:
            self.appender.append(PendingBatch(memoryview(bytearray(data)), count, sequenced, lambda *_: None))

    def confirm(self) -> None:
        self.appender.on_receipt(self.confirmed, Position(1, self.confirmed))
        self.confirmed += 1

    def confirm_all(self) -> None:
        while self.confirmed < len(self.producer.sent):
            self.confirm()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
