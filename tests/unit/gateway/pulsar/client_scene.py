"""A client on a scripted broker, and a listener."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from tests.unit.gateway.pulsar.fake_broker import FakeBroker, fake_broker, settings_for

TOPIC = "persistent://t/ns/x-partition-0"


class Log:
    """A listener of both kinds that records its events."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.heard.put_nowait((sequence_id, position))

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        self.heard.put_nowait((sequence_id, type(error)))

    def on_producer_closed(self, error: PulsarError) -> None:
        self.heard.put_nowait((type(error),))

    def on_entry(self, entry: Entry) -> None:
        self.heard.put_nowait((entry.position,))

    def on_reader_closed(self, error: PulsarError) -> None:
        self.heard.put_nowait((type(error),))


Test = Callable[[FakeBroker, PulsarClient], Awaitable[None]]


def run(test: Test, runner: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run, **settings: object) -> None:
    async def main() -> None:
        async with fake_broker() as broker:
            client = PulsarClient(settings_for(broker, **settings))
            try:
                async with asyncio.timeout(20):
                    await test(broker, client)
            finally:
                await client.close()

    runner(main())
