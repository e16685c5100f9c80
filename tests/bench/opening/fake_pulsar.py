"""A Pulsar whose topics all begin with the same two entries, in a process of its own, so that a measurement contains
the gateway's work only. It implements the part of the protocol that opens, writes and reads logs."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable

import uvloop
from crc32c import crc32c

from gateway.log.entries.log_entry import KAFKA_FORMAT
from gateway.log.entries.message_entry import FORMAT_PROPERTY
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.frames import encode_command, parse_command
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandConnected,
    CommandGetLastMessageIdResponse,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPong,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandSuccess,
    KeyValue,
    MessageIdData,
    MessageMetadata,
)

READ_BUFFER_BYTES = 1 << 20
LEDGER = 7
ENTRIES = 2
"""The number of entries in every topic before anything is written to it. Each has one record."""
STATS = (
    b'{"ledgers":[{"ledgerId":7,"entries":0,"size":0}],"state":"LedgerOpened","currentLedgerEntries":2,'
    b'"currentLedgerSize":300,"lastConfirmedEntry":"7:1","pendingAddEntriesCount":0,"entriesAddedCounter":2,'
    b'"cursors":{},"compactedLedger":{"ledgerId":-1,"entries":-1,"size":-1}}'
)
_SIZES = struct.Struct(">II")
"""Of the frame without this field, and of its command."""
INFO = b'{"version":1,"ledgers":[{"ledgerId":7}],"cursors":{},"properties":{"index":"-1"}}'


class Broker(asyncio.BufferedProtocol):
    """One connection of the binary protocol. What follows a command in its frame is dropped, not copied."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._view = memoryview(bytearray(READ_BUFFER_BYTES))
        self._filled = 0
        self._dropped = 0
        """Number of the next bytes that belong to a frame whose command is answered already."""
        self._topics: dict[int, str] = {}
        """Topic of each consumer."""
        self._starts: dict[int, int] = {}
        self._written: dict[int, int] = {}
        """Number of entries of each producer."""
        self._answers: dict[int, Callable[[BaseCommand], bytes]] = {
            BaseCommand.CONNECT: self._connected,
            BaseCommand.LOOKUP: self._lookup,
            BaseCommand.SUBSCRIBE: self._subscribe,
            BaseCommand.GET_LAST_MESSAGE_ID: self._last,
            BaseCommand.FLOW: self._flow,
            BaseCommand.PRODUCER: self._producer,
            BaseCommand.SEND: self._receipt,
            BaseCommand.CLOSE_CONSUMER: lambda c: _success(c.close_consumer.request_id),
            BaseCommand.CLOSE_PRODUCER: lambda c: _success(c.close_producer.request_id),
            BaseCommand.PING: lambda _: _PONG,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        filled, view, answers = self._filled + nbytes, self._view, []
        position = min(self._dropped, filled)
        self._dropped -= position
        while filled - position >= _SIZES.size:
            size, command_size = _SIZES.unpack_from(view, position)
            behind = position + _SIZES.size + command_size
            if behind > filled:
                break
            command, _ = parse_command(view[position + 4 : behind])
            answers.append(self._answers[command.type](command))
            end = position + 4 + size
            position = min(end, filled)
            self._dropped = end - position
        view[: filled - position] = bytes(view[position:filled])
        self._filled = filled - position
        self._transport.write(b"".join(answers))  # type: ignore[attr-defined]

    def _connected(self, _: BaseCommand) -> bytes:
        connected = CommandConnected(server_version="fake", max_message_size=5 << 20)
        return encode_command(BaseCommand(type=BaseCommand.CONNECTED, connected=connected))

    def _lookup(self, command: BaseCommand) -> bytes:
        response = CommandLookupTopicResponse(
            request_id=command.lookup_topic.request_id, broker_service_url=self._url, authoritative=True,
            response=CommandLookupTopicResponse.Connect,
        )  # fmt: skip
        return encode_command(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_topic_response=response))

    def _subscribe(self, command: BaseCommand) -> bytes:
        start = command.subscribe.start_message_id
        is_here = start.ledger_id == LEDGER
        self._starts[command.subscribe.consumer_id] = start.entry_id if is_here else 0
        return _success(command.subscribe.request_id)

    def _last(self, command: BaseCommand) -> bytes:
        response = CommandGetLastMessageIdResponse(
            request_id=command.get_last_message_id.request_id,
            last_message_id=MessageIdData(ledger_id=LEDGER, entry_id=ENTRIES - 1),
        )
        return encode_command(
            BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=response)
        )

    def _flow(self, command: BaseCommand) -> bytes:
        consumer, permits = command.flow.consumer_id, command.flow.message_permits
        first = self._starts.get(consumer, ENTRIES)
        behind = min(ENTRIES, first + permits)
        self._starts[consumer] = behind
        return b"".join(_message(consumer, entry) for entry in range(first, behind))

    def _producer(self, command: BaseCommand) -> bytes:
        self._written[command.producer.producer_id] = 0
        name = command.producer.producer_name or f"fake-{command.producer.producer_id}"
        success = CommandProducerSuccess(
            request_id=command.producer.request_id, producer_name=name, last_sequence_id=-1
        )
        return encode_command(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=success))

    def _receipt(self, command: BaseCommand) -> bytes:
        producer = command.send.producer_id
        entry_id = ENTRIES + self._written[producer]
        self._written[producer] += 1
        receipt = CommandSendReceipt(
            producer_id=producer, sequence_id=command.send.sequence_id,
            message_id=MessageIdData(ledger_id=LEDGER, entry_id=entry_id),
        )  # fmt: skip
        return encode_command(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt))


class Admin(asyncio.Protocol):
    """One connection of the admin API."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        body = STATS if b"internalStats" in data.partition(b"\r\n")[0] else INFO
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)  # type: ignore[attr-defined]


def _success(request_id: int) -> bytes:
    return encode_command(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id)))


def _message(consumer: int, entry_id: int) -> bytes:
    message = CommandMessage(
        consumer_id=consumer, message_id=MessageIdData(ledger_id=LEDGER, entry_id=entry_id, partition=-1)
    )
    command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    rest = _ENTRY_BEHIND_INDEX
    index = BrokerEntryMetadata(broker_timestamp=1, index=entry_id).SerializeToString()
    body = b"".join((
        len(command).to_bytes(4, "big"), command, b"\x0e\x02", len(index).to_bytes(4, "big"), index, rest
    ))  # fmt: skip
    return len(body).to_bytes(4, "big") + body


def _entry() -> bytes:
    """An entry: checksum, metadata and payload."""
    metadata = MessageMetadata(
        producer_name="earlier", sequence_id=0, publish_time=1, num_messages_in_batch=1,
        properties=[KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode())],
    ).SerializeToString()  # fmt: skip
    rest = len(metadata).to_bytes(4, "big") + metadata + bytes(encode_batch([Record(0, 1_000, None, b"value", ())]))
    return b"\x0e\x01" + crc32c(rest).to_bytes(4, "big") + rest


_ENTRY_BEHIND_INDEX = _entry()
_PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


async def _serve() -> None:
    """Print both ports, and serve until the end of the standard input."""
    loop = asyncio.get_running_loop()
    urls = [""]
    broker = await loop.create_server(lambda: Broker(urls[0]), "127.0.0.1", 0)
    admin = await loop.create_server(Admin, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (broker, admin)]
    urls[0] = f"pulsar://127.0.0.1:{ports[0]}"
    print(*ports, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
