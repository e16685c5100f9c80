"""Decoders of Pulsar's protocol with arbitrary and damaged bytes: only their documented errors, within their limits."""

import contextlib
import struct

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.framing import NOT_A_FRAME, FrameReceiver
from protocol.pulsar.entry import EntryError, encode_message, iter_messages
from protocol.pulsar.frames import FrameError, parse_command, parse_message
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandMessage,
    MessageIdData,
    MessageMetadata,
)

MAX_BYTES = 1 << 16
FUZZ = settings(max_examples=200, deadline=None)

any_bytes = st.binary(max_size=300)


def message_frame(payload: bytes, num_messages: int, compression: int) -> bytes:
    message = CommandMessage(consumer_id=1, message_id=MessageIdData(ledger_id=1, entry_id=2))
    command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    broker_metadata = BrokerEntryMetadata(index=5).SerializeToString()
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=num_messages, uncompressed_size=300
    )
    metadata.compression = compression
    encoded = metadata.SerializeToString()
    rest = struct.pack(">I", len(encoded)) + encoded + payload
    return b"".join(
        [
            struct.pack(">I", len(command)) + command,
            struct.pack(">HI", 0x0E02, len(broker_metadata)) + broker_metadata,
            struct.pack(">HI", 0x0E01, crc32c(rest)) + rest,
        ]
    )


def read_everything(frame: bytes) -> None:
    """What a reader reads of a frame, down to every field of each message."""
    with contextlib.suppress(FrameError, EntryError):
        view = memoryview(bytearray(frame))
        command, offset = parse_command(view)
        assert command.message.message_id.ledger_id is not None
        parts = parse_message(view, offset)
        size = sum(len(message.value) for message in iter_messages(parts.metadata, parts.payload, MAX_BYTES))
        assert size <= max(MAX_BYTES, len(frame))


@FUZZ
@given(any_bytes)
def test_arbitrary_frames(frame: bytes) -> None:
    read_everything(frame)


@FUZZ
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 4))
def test_a_message_with_a_wrong_byte(position: int, byte: int, compression: int) -> None:
    frame = bytearray(message_frame(encode_message(b"v", key=b"k", properties=[("p", b"q")]) * 2, 2, compression))
    frame[position % len(frame)] = byte
    read_everything(bytes(frame))


@FUZZ
@given(any_bytes, st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 4))
def test_arbitrary_payloads(payload: bytes, num_messages: int, compression: int) -> None:
    read_everything(message_frame(payload, num_messages, compression))


@FUZZ
@given(any_bytes, any_bytes)
def test_arbitrary_metadata(encoded: bytes, payload: bytes) -> None:
    rest = struct.pack(">I", len(encoded)) + encoded + payload
    command = BaseCommand(type=BaseCommand.MESSAGE).SerializePartialToString()
    read_everything(struct.pack(">I", len(command)) + command + struct.pack(">HI", 0x0E01, crc32c(rest)) + rest)


@FUZZ
@given(
    st.builds(
        MessageMetadata,
        partition_key=any_bytes,
        partition_key_b64_encoded=st.booleans(),
        ordering_key=any_bytes,
        compression=st.integers(-1, 6),
        uncompressed_size=st.integers(0, (1 << 32) - 1),
        num_messages_in_batch=st.integers(-1, 3),
        num_chunks_from_msg=st.integers(-1, 3),
        uuid=any_bytes,
    ),
    any_bytes,
)
def test_odd_metadata(metadata: MessageMetadata, payload: bytes) -> None:
    encoded = metadata.SerializePartialToString()
    rest = struct.pack(">I", len(encoded)) + encoded + payload
    command = BaseCommand(type=BaseCommand.MESSAGE).SerializePartialToString()
    read_everything(struct.pack(">I", len(command)) + command + struct.pack(">HI", 0x0E01, crc32c(rest)) + rest)


@FUZZ
@given(st.lists(any_bytes, max_size=20))
def test_arbitrary_streams(reads: list[bytes]) -> None:
    receiver = FrameReceiver(memoryview(bytearray(64)), MAX_BYTES, MAX_BYTES)
    for data in reads:
        rest = data
        while rest:
            buffer = receiver.get_buffer()
            count = min(len(buffer), len(rest))
            assert 0 < count <= MAX_BYTES
            buffer[:count] = rest[:count]
            if NOT_A_FRAME in receiver.buffer_updated(count):
                return
            rest = rest[count:]
