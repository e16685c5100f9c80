"""Frames of Pulsar's binary protocol: bytes to commands and back.

A frame is `total_size u32, command_size u32, command`, where total_size counts everything after itself. SEND and
MESSAGE frames carry an entry after the command:

    [0x0e02, size u32, BrokerEntryMetadata]  MESSAGE only, if the broker exposes it
    [0x0e01, crc32c u32]                     checksum of everything that follows it
    size u32, MessageMetadata, payload

All integers are big-endian. See https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/ and PIP-70.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandFlow,
    CommandSend,
    MessageMetadata,
)

Buffer = bytes | bytearray | memoryview

CHECKSUM_MAGIC = 0x0E01
BROKER_METADATA_MAGIC = 0x0E02
FRAME_PADDING_BYTES = 10 * 1024
"""The size that a broker allows a frame to have above the largest message, for command and metadata."""

_U16 = Struct(">H")
_U32 = Struct(">I")
_MAGIC_U32 = Struct(">HI")
_FRAME_SIZES = Struct(">II")
_CHECKSUM_MAGIC_BYTES = _U16.pack(CHECKSUM_MAGIC)


class FrameError(ValueError):
    """The peer's bytes are not a frame of this protocol, or their checksum is wrong."""


class MessageParts(NamedTuple):
    """The content of a MESSAGE frame after its command."""

    broker_metadata: BrokerEntryMetadata | None
    metadata: MessageMetadata
    """Brokers store metadata without a check. If it cannot be decoded, it is not initialized, and the entry counts as
    one message."""
    payload: memoryview


def encode_command(command: BaseCommand) -> bytes:
    """The whole frame of a command without a payload."""
    body = command.SerializeToString()
    return _FRAME_SIZES.pack(len(body) + 4, len(body)) + body


def encode_flow(consumer_id: int, permits: int) -> bytes:
    """The whole frame that lets the broker send `permits` more messages (messages, not entries)."""
    flow = CommandFlow(consumer_id=consumer_id, message_permits=permits)
    return encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))


def encode_metadata_properties(properties: Iterable[tuple[str, str]]) -> bytes:
    """Properties as encoded MessageMetadata fields, ready for `SendEncoder.encode`."""
    metadata = MessageMetadata()
    for key, value in properties:
        metadata.properties.add(key=key.encode(), value=value.encode())
    return metadata.SerializePartialToString()


_SEND_COMMAND = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=0, sequence_id=0))
_SEND = _SEND_COMMAND.send
_METADATA = MessageMetadata()
"""The command and the metadata of every SEND frame. Only their fields are set: half the cost of building them, and as
fast as writing the varints by hand. All encoders share them, because their messages would take 2 KB of each."""


class SendEncoder:
    """Encodes one producer's SEND frames."""

    __slots__ = ("_name", "_producer_id")

    def __init__(self, producer_id: int, producer_name: str) -> None:
        self._producer_id = producer_id
        self._name = MessageMetadata(producer_name=producer_name).SerializePartialToString()
        """The encoded field, which is written before the others."""

    def encode(
        self,
        sequence_id: int,
        num_messages: int,
        publish_time_ms: int,
        metadata_fields: bytes,
        chunks: Sequence[Buffer],
    ) -> tuple[list[Buffer], int]:
        """One frame as buffers to write in order (the chunks are not copied), and its size in bytes.

        `metadata_fields` are further MessageMetadata fields, already encoded (see `encode_metadata_properties`).
        Chunks must be byte-wide and contiguous.
        """
        send, metadata = _SEND, _METADATA
        send.producer_id = self._producer_id
        send.sequence_id = metadata.sequence_id = sequence_id
        send.num_messages = metadata.num_messages_in_batch = num_messages
        metadata.publish_time = publish_time_ms
        command_bytes = _SEND_COMMAND.SerializeToString()
        metadata_bytes = self._name + metadata.SerializePartialToString() + metadata_fields
        metadata_bytes = len(metadata_bytes).to_bytes(4, "big") + metadata_bytes
        checksum = crc32c(metadata_bytes)
        payload_size = 0
        for chunk in chunks:
            checksum = crc32c(chunk, checksum)
            payload_size += len(chunk)
        size = 10 + len(command_bytes) + len(metadata_bytes) + payload_size
        header = b"".join((
            _FRAME_SIZES.pack(size, len(command_bytes)),
            command_bytes,
            _CHECKSUM_MAGIC_BYTES,
            checksum.to_bytes(4, "big"),
            metadata_bytes,
        ))  # fmt: skip
        return [header, *chunks], size + 4


def parse_command(frame: memoryview) -> tuple[BaseCommand, int]:
    """The command of a frame (given without its total_size), and where in the frame it ends.

    Raises FrameError.
    """
    if len(frame) < 4:
        raise FrameError("frame without a command size")
    (command_size,) = _U32.unpack_from(frame)
    end = 4 + command_size
    if end > len(frame):
        raise FrameError(f"command of {command_size} bytes in a frame of {len(frame)}")
    try:
        return BaseCommand.FromString(bytes(frame[4:end])), end
    except DecodeError as error:
        raise FrameError(f"undecodable command: {error}") from None


def parse_message(frame: memoryview, offset: int) -> MessageParts:
    """The rest of a MESSAGE frame after the command, which ends at `offset`. The payload is a view of the frame.

    Raises FrameError, also for a wrong checksum.
    """
    try:
        return _parse_message(frame, offset)
    except StructError:
        raise FrameError("message frame ends within its headers") from None
    except DecodeError as error:
        raise FrameError(f"undecodable metadata: {error}") from None


def _parse_message(frame: memoryview, offset: int) -> MessageParts:
    # Without a magic, this is the size of the metadata; its upper half would be 0x0e01 only from 234 MB on.
    (magic,) = _U16.unpack_from(frame, offset)
    broker_metadata = None
    if magic == BROKER_METADATA_MAGIC:
        start = offset + _MAGIC_U32.size
        offset = start + _MAGIC_U32.unpack_from(frame, offset)[1]
        if offset > len(frame):
            raise _too_short(offset, frame)
        broker_metadata = BrokerEntryMetadata.FromString(bytes(frame[start:offset]))
        (magic,) = _U16.unpack_from(frame, offset)
    if magic == CHECKSUM_MAGIC:
        expected = _MAGIC_U32.unpack_from(frame, offset)[1]
        offset += _MAGIC_U32.size
        actual = crc32c(frame[offset:])
        if actual != expected:
            raise FrameError(f"checksum {actual:#010x}, expected {expected:#010x}")
    start = offset + _U32.size
    end = start + _U32.unpack_from(frame, offset)[0]
    if end > len(frame):
        raise _too_short(end, frame)
    try:
        metadata = MessageMetadata.FromString(bytes(frame[start:end]))
    except DecodeError:
        metadata = MessageMetadata()
    return tuple.__new__(MessageParts, (broker_metadata, metadata, frame[end:]))


def _too_short(end: int, frame: memoryview) -> FrameError:
    return FrameError(f"metadata ends at {end} in a frame of {len(frame)} bytes")
