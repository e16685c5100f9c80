"""A scripted broker on a loopback socket, for behaviour that is rare in a real one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.frames import encode_command, parse_command
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandProducerSuccess,
    CommandSuccess,
    ServerError,
)

Answer = Callable[[BaseCommand], BaseCommand | list[BaseCommand] | None]


class FakeBroker:
    """Answers CONNECT, LOOKUP (with itself), PRODUCER, SUBSCRIBE and closes; `answers` overrides by command type."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[BaseCommand] = []
        self.answers: dict[int, Answer] = {}
        self.arrived = asyncio.Event()
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: asyncio.Queue[Exception] = asyncio.Queue()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def stop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                command, _ = parse_command(memoryview(await reader.readexactly(size)))
                self.received.append(command)
                self.arrived.set()
                answer = self.answers.get(command.type, self.answer)(command)
                answers = answer if isinstance(answer, list) else [] if answer is None else [answer]
                writer.write(b"".join(map(encode_command, answers)))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._ended.put_nowait(error)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def send(self, *commands: BaseCommand) -> None:
        self._writers[-1].write(b"".join(map(encode_command, commands)))

    def send_bytes(self, data: bytes) -> None:
        self._writers[-1].write(data)

    def drop(self) -> None:
        self._writers[-1].transport.abort()

    def pause(self) -> None:
        """Stop reading."""
        cast("asyncio.Transport", self._writers[-1].transport).pause_reading()

    def resume(self) -> None:
        cast("asyncio.Transport", self._writers[-1].transport).resume_reading()

    async def ended(self) -> Exception:
        """How the next connection ended."""
        return await self._ended.get()

    def received_of(self, command_type: int) -> list[BaseCommand]:
        return [command for command in self.received if command.type == command_type]

    async def wait_for(self, command_type: int) -> BaseCommand:
        while True:
            for command in self.received:
                if command.type == command_type:
                    return command
            self.arrived.clear()
            await self.arrived.wait()

    def answer(self, command: BaseCommand) -> BaseCommand | None:
        if command.type == BaseCommand.CONNECT:
            return BaseCommand(
                type=BaseCommand.CONNECTED, connected=CommandConnected(server_version="fake", max_message_size=1000)
            )
        if command.type == BaseCommand.LOOKUP:
            return lookup_answer(command, self.url)
        if command.type == BaseCommand.PRODUCER:
            success = CommandProducerSuccess(request_id=command.producer.request_id, producer_name="fake-1")
            return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=success)
        for field in ("subscribe", "close_producer", "close_consumer"):
            if command.HasField(field):
                request_id = getattr(command, field).request_id
                return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))
        return None


@contextlib.asynccontextmanager
async def fake_broker() -> AsyncIterator[FakeBroker]:
    broker = FakeBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield broker
    finally:
        server.close()
        await broker.stop()
        await server.wait_closed()


def settings_for(*brokers: FakeBroker, **changes: object) -> PulsarSettings:
    hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    fields = {"backoff_initial_ms": 1, "backoff_max_ms": 2, **changes}
    return PulsarSettings.model_validate({"service_url": f"pulsar://{hosts}", **fields})


def lookup_answer(
    command: BaseCommand, url: str, *, redirect: bool = False, authoritative: bool = True, proxy: bool = False
) -> BaseCommand:
    response = CommandLookupTopicResponse(
        request_id=command.lookup_topic.request_id,
        broker_service_url=url,
        authoritative=authoritative,
        proxy_through_service_url=proxy,
    )
    response.response = CommandLookupTopicResponse.Redirect if redirect else CommandLookupTopicResponse.Connect
    return BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_topic_response=response)


def error_answer(request_id: int, code: ServerError) -> BaseCommand:
    error = CommandError(request_id=request_id, error=code, message="scripted")
    return BaseCommand(type=BaseCommand.ERROR, error=error)
