"""What a connection sends in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.connection import Connection
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.settings import PulsarSettings


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.writes.append(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return SimpleNamespace(setsockopt=lambda *_: None)

    def abort(self) -> None: ...


class Owner:
    last_receipt_s = 0.0

    def on_connection_state(self, *_: object) -> None: ...


async def connected() -> tuple[Connection, list[bytes]]:
    """A connection whose login was sent, and what is written afterwards."""
    connection, socket = Connection(BrokerAddress("pulsar://broker:6650"), PulsarSettings(), Owner()), Socket()
    connection.connection_made(socket)
    await asyncio.sleep(0)
    socket.writes.clear()
    return connection, socket.writes


async def test_what_steps_write_is_sent_in_their_turn_with_everything_else() -> None:
    connection, writes = await connected()
    connection.before_flush(lambda: connection.write(b"first "))
    connection.write(b"zero ")
    connection.before_flush(lambda: connection.write(b"second"))
    await asyncio.sleep(0)
    assert writes == [b"zero first second"]
    connection.write(b"later")
    await asyncio.sleep(0)
    assert writes[1:] == [b"later"]


async def test_a_step_of_a_step_has_the_next_turn() -> None:
    connection, writes = await connected()
    connection.before_flush(lambda: connection.before_flush(lambda: connection.write(b"second")))
    await asyncio.sleep(0)
    assert writes == []
    await asyncio.sleep(0)
    assert writes == [b"second"]


async def test_a_step_that_fails_is_reported_and_stops_no_other() -> None:
    connection, writes = await connected()
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    error = RuntimeError("a defect")

    def fail() -> None:
        raise error

    connection.before_flush(fail)
    connection.before_flush(lambda: connection.write(b"data"))
    await asyncio.sleep(0)
    assert (writes, reported) == ([b"data"], [error])


async def test_steps_run_although_the_connection_was_closed() -> None:
    connection, writes = await connected()
    ran: list[bool] = []
    connection.write(b"unsent")
    connection.before_flush(lambda: ran.append(True))
    connection.close(ConnectionLostError("lost"))
    await asyncio.sleep(0)
    assert (writes, ran) == ([], [True])
