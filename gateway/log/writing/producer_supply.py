"""Opens a log's producer when it is first needed, and again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from gateway.background import run_shared
from gateway.backoff import Backoff, retried
from gateway.log.opening_turns import HOLD_AGAIN_S, OpeningTurns
from gateway.log.patience import MAX_PATIENCE_S, Patience
from gateway.log.writing.appender import Appender
from gateway.log.writing.writer_names import LATE_ARRIVAL_S, WriterNames, fence_writers
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, PulsarError
from gateway.pulsar.producer import Producer

RETRY_S = 1.0
AGAIN_S, AGAIN_MAX_S = 0.05, 1.0
"""The pauses before another producer is opened because the new one was lost at once."""

log = structlog.get_logger()
failures = SparseLog(log, lines=LINES_PER_S)


class ProducerSupply:
    """Gives the appender its producers."""

    def __init__(
        self,
        pulsar_topic: str,
        client: PulsarClient,
        turns: OpeningTurns,
        appender: Appender,
        resolve_in_flight: Callable[[], Awaitable[None]],
        names: WriterNames,
    ) -> None:
        """``resolve_in_flight`` finds out what a lost producer had in flight: entries that were not written are queued.

        It is called while the new producer is open and not yet used: no entry of the lost one can arrive any more.
        """
        self._topic = pulsar_topic
        self._client = client
        self._turns = turns
        self._appender = appender
        self._resolve_in_flight = resolve_in_flight
        self._names = names
        self._opening: asyncio.Task[None] | None = None
        self._begun: asyncio.Event | None = None
        """Set when the opening has its turn, or has ended. None while there is no opening."""
        self._patience = Patience(turns)
        self._stopped = False

    def open(self) -> asyncio.Task[None]:
        """Begin to open a producer. All callers share one run. Raises PulsarError."""
        if self._opening is None:
            self._begun = begun = asyncio.Event()
            self._opening = run_shared("opening of a producer", self._supply())
            self._opening.add_done_callback(partial(self._ended, begun))
        return self._opening

    async def wait(self) -> None:
        """Open a producer and wait for it. Raises PulsarError, and KafkaError if it takes too long."""
        opening, begun = self.open(), self._begun
        if begun is not None:
            await begun.wait()
        await self._patience.wait(opening)

    def lost(self, error: BaseException) -> None:
        log.info("writer lost", topic=self._topic, error=str(error))
        if not self._appender.idle and not self._stopped:
            self.open()

    def stop(self) -> None:
        """From now on, a lost producer is not replaced."""
        self._stopped = True

    def cancel(self) -> None:
        if self._opening is not None:
            self._opening.cancel()

    async def _supply(self) -> None:
        """A producer may be lost before it is used, or while the log is read. What waits is not refused for that:
        clients that are not idempotent would write their next batches first."""
        try:
            producer = await retried(self._open, self._try_again, Backoff(AGAIN_S, AGAIN_MAX_S), MAX_PATIENCE_S)
        except Exception as error:
            self._opening = None
            self._failed(error)
            raise
        self._opening = None  # from here on, the producer may be lost
        self._appender.use(producer)

    def _try_again(self, error: Exception) -> bool:
        return isinstance(error, PulsarError) and error.retriable and not self._stopped

    async def _open(self) -> Producer:
        appender = self._appender
        lost, own_name = appender.predecessor, self._names.own_name()
        if lost is not None and own_name not in {"", lost.name}:  # this gateway was evicted since
            self._begin()
            await fence_writers(self._client, self._topic, [lost.name], self._turns)
            lost = None
        hold_s = HOLD_AGAIN_S if self._patience.exhausted else None
        async with self._turns.turn(self, urgent=True, hold_s=hold_s):
            self._begin()
            producer = await self._client.open_producer(self._topic, appender, predecessor=lost, name=own_name)
        try:
            if lost is not None:
                await asyncio.sleep(LATE_ARRIVAL_S)
            if appender.predecessor is not None:
                await self._resolve_in_flight()
            if producer.closed:
                raise ConnectionLostError("the new producer was lost before its first entry")
        except BaseException:
            # The new producer has its predecessor's name, which the next attempt needs.
            with contextlib.suppress(PulsarError):
                await producer.close()
            raise
        return producer

    def _begin(self) -> None:
        if self._begun is not None and not self._begun.is_set():
            self._patience.begin()
            self._begun.set()

    def _ended(self, begun: asyncio.Event, task: asyncio.Task[None]) -> None:
        begun.set()  # also if the task was cancelled before its turn
        if self._begun is begun:
            self._begun = None
        self._patience.end(task)

    def _failed(self, error: Exception) -> None:
        if self._stopped:
            return
        failures.warning("cannot write", topic=self._topic, error=str(error))
        self._appender.fail_queued(error)
        if self._appender.predecessor is not None and not self._appender.idle:
            asyncio.get_running_loop().call_later(RETRY_S, self.lost, error)
