"""Frames of Pulsar's brokers, and entries as native producers may write them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

from crc32c import crc32c

from gateway.log.entries.chunked_messages import ChunkedMessages, is_piece
from gateway.log.entries.log_entry import collect, from_pulsar
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.framing import FrameReceiver
from protocol.kafka.batch import HEADER_BYTES, InvalidBatch, iter_headers
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.entry import EntryError, compress, encode_message, iter_messages
from protocol.pulsar.frames import FrameError, encode_command, parse_command, parse_message
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandMessage,
    EncryptionKeys,
    KeyValue,
    MessageIdData,
    MessageMetadata,
)
from tests.fuzz.target import Target, reason
from tests.fuzz.targets.records import batches
from tests.support.records import decode_records

MAX_BYTES = 1 << 17
_TYPES = dict(BaseCommand.Type.items())
_LENGTH = struct.Struct(">H")


def _metadata(count: int = 1, properties: dict[str, str] | None = None, **fields: Any) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=5_000, num_messages_in_batch=count, **fields
    )
    metadata.properties.extend(KeyValue(key=k.encode(), value=v.encode()) for k, v in (properties or {}).items())
    return bytes(metadata.SerializeToString())


def _stored(random: Random) -> Sequence[bytes]:
    """The length of the metadata, the metadata, the payload."""
    two = encode_message(b"one", key=b"k", properties=[("a", b"b")], event_time_ms=9)
    two += encode_message(None, key=b"\xff")
    kafka, pulsar = {"entry.format": "kafka"}, {"entry.format": "pulsar", "kafka.batches": "1,0,7,0,3;1,8,-1,-1,-1"}
    words = encode_message(b"\0", properties=[("eA==", b"eA=="), ("n", b""), ("kafka.record", b"empty 0k 1n")])
    entries = [
        *((_metadata(2, compression=codec, uncompressed_size=len(two)), compress(codec, two)) for codec in range(5)),
        (_metadata(2, pulsar), two),
        (_metadata(1, {"entry.format": "pulsar", "kafka.batches": "1,0,7,0,3"}), words),
        *((_metadata(count, kafka), bytes(encode_batch([Record(n, n, b"k", b"v") for n in range(count)])))
          for count in (1, 4)),
        (_metadata(4, kafka), b"".join(batches(random)[:2])),
        (_metadata(1, encryption_keys=[EncryptionKeys(key="k", value=b"v")]), b"secret"),
        (_metadata(1, marker_type=12), b""),
        *((_metadata(1, uuid=b"u", chunk_id=n, num_chunks_from_msg=2, total_chunk_msg_size=6), b"abc") for n in (0, 1)),
        (_metadata(1, partition_key=b"a2V5", partition_key_b64_encoded=True, ordering_key=b"o", event_time=3), b""),
        (_metadata(1, null_value=True, replicated_from="eu", txnid_least_bits=1, txnid_most_bits=2), b""),
        (MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"whole"),
        (_metadata(2, compression=3, uncompressed_size=MAX_BYTES), compress(3, bytes(MAX_BYTES))),
    ]  # fmt: skip
    return [_LENGTH.pack(len(metadata)) + metadata + payload for metadata, payload in entries]


def _entry(data: bytes) -> Entry:
    """The entry from a frame with a correct checksum, as a broker would send it."""
    size = min(_LENGTH.unpack_from(data)[0], len(data) - 2)
    rest = size.to_bytes(4, "big") + data[2:]
    command = BaseCommand(type=BaseCommand.MESSAGE, message=CommandMessage(consumer_id=1, message_id=MessageIdData()))
    body = command.SerializePartialToString()
    broker = BrokerEntryMetadata(index=[3, 1_000, 1_000, 2**40][len(data) % 4]).SerializeToString()
    frame = b"".join([
        struct.pack(">I", len(body)), body, struct.pack(">HI", 0x0E02, len(broker)), broker,
        struct.pack(">HI", 0x0E01, crc32c(rest)), rest,
    ])  # fmt: skip
    view = memoryview(bytearray(frame))
    _, offset = parse_command(view)
    broker_metadata, metadata, payload = parse_message(view, offset)
    return Entry(Position(1, 2), broker_metadata, metadata, payload)


def check_stored(data: bytes) -> str:
    """Whatever an entry contains, readers get batches that cover its offsets, and continue after it."""
    if len(data) < 2:
        return "short"
    entry = _entry(data)
    outcome = _messages(entry)
    assert entry.index is not None
    chunked = ChunkedMessages(MAX_BYTES)
    for _ in range(2 if is_piece(entry) else 1):
        chunked.lacks_pieces(entry)
        read = from_pulsar(entry, max_bytes=MAX_BYTES, chunked=chunked)
    assert 0 <= chunked.size_bytes <= MAX_BYTES
    assert read is not None
    assert 0 <= read.base_offset < read.next_offset == entry.index + 1
    at = read.base_offset
    outcome += f" in {read.next_offset - at == 1}"
    for position, header in iter_headers(read.data):
        assert header.base_offset == at
        at = header.last_offset + 1
        outcome += f" {header.record_count > 0} {header.producer_id >= 0} {header.log_append_time}"
        try:
            decode_records(read.data, position, header, MAX_BYTES)
        except InvalidBatch as error:
            outcome += reason(error)  # of a producer with our property: Kafka's clients get the same error
    assert at == read.next_offset
    for offset in {read.base_offset, read.next_offset - 1}:
        found = collect([read], 0, offset, 1, at_least_one=True)
        assert found.next_offset > offset
        assert found.size_bytes >= HEADER_BYTES
    return outcome


def _messages(entry: Entry) -> str:
    try:
        messages = list(iter_messages(entry.metadata, entry.payload, MAX_BYTES))
    except EntryError as error:
        return reason(error)
    assert sum(len(message.value) for message in messages) <= max(MAX_BYTES, len(entry.payload))
    return "some" if messages else "none"


def _frames(random: Random) -> Sequence[bytes]:
    ids = MessageIdData(ledger_id=1, entry_id=2)
    commands = [
        BaseCommand(type=BaseCommand.PING), BaseCommand(type=BaseCommand.CONNECTED),
        BaseCommand(type=BaseCommand.MESSAGE, message=CommandMessage(consumer_id=1, message_id=ids)),
    ]  # fmt: skip
    for name, field in BaseCommand.DESCRIPTOR.fields_by_name.items():
        if field.message_type is not None:
            command = BaseCommand(type=name.upper() if name.upper() in _TYPES else "CONNECT")
            getattr(command, name).SetInParent()
            commands.append(command)
    found = []
    for command in commands:
        body = command.SerializePartialToString()
        found.append(struct.pack(">II", len(body) + 4, len(body)) + body)
    metadata = _metadata(2, {"a": "b"})
    rest = struct.pack(">I", len(metadata)) + metadata + b"payload"
    broker = BrokerEntryMetadata(index=5).SerializeToString()
    tail = struct.pack(">HI", 0x0E02, len(broker)) + broker + struct.pack(">HI", 0x0E01, crc32c(rest)) + rest
    body = commands[2].SerializeToString()
    message = struct.pack(">II", 4 + len(body) + len(tail), len(body)) + body + tail
    return [*found, message, message + encode_command(commands[0]), message * 3]


def check_frames(data: bytes) -> str:
    """A stream of frames, cut anywhere; each is parsed as by a consumer."""
    outcomes: list[str] = []

    def on_frame(frame: memoryview) -> None:
        command, offset = parse_command(frame)
        outcomes.append(BaseCommand.Type.Name(command.type))
        if command.type == BaseCommand.MESSAGE:
            parts = parse_message(frame, offset)
            assert len(parts.payload) <= len(frame)

    receiver = FrameReceiver(memoryview(bytearray(256)), 1 << 20, 1 << 20)
    rest = memoryview(data)
    step = 1 + zlib.crc32(data) % 300
    try:
        while rest and len(outcomes) < 5:
            buffer = receiver.get_buffer()
            count = min(len(buffer), len(rest), step)
            assert count > 0
            buffer[:count] = rest[:count]
            for frame in receiver.buffer_updated(count):
                on_frame(memoryview(frame))
            rest = rest[count:]
    except FrameError as error:
        outcomes.append(reason(error))
    return " ".join(outcomes[-2:])


TARGETS = (
    Target("Pulsar frames", _frames, check_frames),
    Target("stored entries", _stored, check_stored),
)
