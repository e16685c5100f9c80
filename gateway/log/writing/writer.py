"""Opening a log's producer: when it is first needed, and anew when it was lost.

What was in flight may or may not be in the log then. The new producer goes on where the lost one stood, and the log is
read to its end before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import structlog

from gateway.log.opening import SETTLE_S
from gateway.log.patience import Patience
from gateway.log.writing.appender import Appender
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, PulsarError

RETRY_S = 1.0

log = structlog.get_logger()


class WrittenLog(Protocol):
    """The partition log, as its writer knows it."""

    pulsar_topic: str
    client: PulsarClient

    @property
    def closed(self) -> bool: ...

    async def read_what_others_sent(self) -> None: ...

    def refuse_in_flight(self) -> None: ...


class Writer:
    """Gives the appender its producers."""

    def __init__(self, log: WrittenLog, appender: Appender) -> None:
        self._log = log
        self._appender = appender
        self._opening: asyncio.Task[None] | None = None
        self._patience = Patience()

    def open(self) -> asyncio.Task[None]:
        """Once for all who ask. Raises PulsarError."""
        if self._opening is None:
            self._patience.begin()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return self._opening

    async def wait(self) -> None:
        """Open it and return when that is done. Raises PulsarError, and KafkaError if it takes too long."""
        await self._patience.wait(self.open())

    def lost(self, error: BaseException) -> None:
        log.info("writer lost", topic=self._log.pulsar_topic, error=str(error))
        if not self._appender.idle and not self._log.closed:
            self.open()

    def cancel(self) -> None:
        if self._opening is not None:
            self._opening.cancel()

    async def _open(self) -> None:
        topic, appender = self._log.pulsar_topic, self._appender
        producer = await self._log.client.open_producer(topic, appender, predecessor=appender.predecessor)
        try:
            if appender.predecessor is not None:
                await asyncio.sleep(SETTLE_S)  # the broker may still have to read what came over a broken connection
                await self._log.read_what_others_sent()
                self._log.refuse_in_flight()
            if producer.closed:
                raise ConnectionLostError("the new producer was lost before its first entry")
        except BaseException:
            # It has its predecessor's name, which the next attempt needs.
            with contextlib.suppress(PulsarError):
                await producer.close()
            raise
        appender.use(producer)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        self._patience.end(task)
        error = None if task.cancelled() else task.exception()
        if error is None or self._log.closed:
            return
        log.warning("cannot write", topic=self._log.pulsar_topic, error=str(error))
        failure = error if isinstance(error, Exception) else RuntimeError("interrupted")
        self._appender.fail_queued(failure)
        if self._appender.predecessor is not None and not self._appender.idle:
            asyncio.get_running_loop().call_later(RETRY_S, self.lost, error)
