"""Frames compared with bytes written by hand from the protocol's description, and round trips."""

import struct

import pytest
from crc32c import crc32c

from protocol.pulsar.frames import (
    FrameError,
    SendEncoder,
    encode_command,
    encode_flow,
    encode_metadata_properties,
    parse_command,
    parse_message,
)
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandMessage,
    CommandPing,
    MessageIdData,
    MessageMetadata,
)

METADATA = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=10)


def message_frame(payload: bytes, *, index: int | None, checksum: bool = True) -> bytes:
    """A MESSAGE frame without its total size, as a broker writes it."""
    message = CommandMessage(consumer_id=5, message_id=MessageIdData(ledger_id=7, entry_id=-1))
    command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    frame = struct.pack(">I", len(command)) + command
    if index is not None:
        broker_metadata = BrokerEntryMetadata(index=index, broker_timestamp=99).SerializeToString()
        frame += struct.pack(">HI", 0x0E02, len(broker_metadata)) + broker_metadata
    metadata = METADATA.SerializeToString()
    rest = struct.pack(">I", len(metadata)) + metadata + payload
    if checksum:
        frame += struct.pack(">HI", 0x0E01, crc32c(rest))
    return frame + rest


def test_ping_is_these_bytes() -> None:
    frame = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
    assert frame.hex() == "00000009" + "00000005" + "0812" + "920100"


def test_flow_is_these_bytes() -> None:
    assert encode_flow(3, 1000).hex() == "0000000d" + "00000009" + "080b" + "5a05" + "0803" + "10e807"


def test_send_is_these_bytes() -> None:
    buffers, size = SendEncoder(3, "p").encode(1, 10, 300, b"", [b"ab", bytearray(b"c")])
    frame = b"".join(buffers)
    metadata = "0a0170" + "1001" + "18ac02" + "580a"
    checked = bytes.fromhex("0000000a" + metadata) + b"abc"
    command = "0806" + "3206" + "0803" + "1001" + "180a"
    expected = "0000000a" + command + "0e01" + f"{crc32c(checked):08x}"
    assert frame.hex() == f"{size - 4:08x}" + expected + checked.hex()
    assert len(frame) == size


def test_send_does_not_copy_the_payload() -> None:
    chunk = bytearray(b"x" * 100)
    buffers, _ = SendEncoder(1, "p").encode(0, 1, 0, b"", [chunk])
    assert buffers[1] is chunk


def test_encoder_forgets_the_previous_send() -> None:
    encoder = SendEncoder(1, "p")
    first, _ = encoder.encode(0, 1, 5, b"", [b"a"])
    encoder.encode(1 << 40, 1 << 20, 1 << 41, encode_metadata_properties([("k", "v")]), [b"long" * 100])
    again, _ = encoder.encode(0, 1, 5, b"", [b"a"])
    assert again == first


def test_properties_arrive_in_the_metadata() -> None:
    fields = encode_metadata_properties([("entry.format", "kafka"), ("ä", "")])
    metadata = MessageMetadata.FromString(METADATA.SerializeToString() + fields)
    assert [(p.key, p.value) for p in metadata.properties] == [(b"entry.format", b"kafka"), ("ä".encode(), b"")]


@pytest.mark.parametrize("index", [None, 0, 1009])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("payload", [b"", b"hello"])
def test_message_parts(index: int | None, checksum: bool, payload: bytes) -> None:
    frame = memoryview(bytearray(message_frame(payload, index=index, checksum=checksum)))
    command, offset = parse_command(frame)
    assert command.type == BaseCommand.MESSAGE
    assert command.message.consumer_id == 5
    assert command.message.message_id.entry_id == -1
    parts = parse_message(frame, offset)
    assert parts.metadata == METADATA
    assert parts.payload == payload
    assert (parts.broker_metadata.index if parts.broker_metadata else None) == index


def test_payload_is_a_mutable_view_of_the_frame() -> None:
    frame = bytearray(message_frame(b"hello", index=1))
    _, offset = parse_command(memoryview(frame))
    parse_message(memoryview(frame), offset).payload[0] = ord("j")
    assert frame.endswith(b"jello")


def test_damaged_payload_is_found() -> None:
    frame = bytearray(message_frame(b"hello", index=1))
    frame[-1] ^= 1
    _, offset = parse_command(memoryview(frame))
    with pytest.raises(FrameError, match="checksum"):
        parse_message(memoryview(frame), offset)


def test_every_truncated_message_is_an_error() -> None:
    frame = message_frame(b"", index=1)
    for end in range(len(frame)):
        view = memoryview(frame[:end])
        with pytest.raises(FrameError):
            parse_message(view, parse_command(view)[1])
