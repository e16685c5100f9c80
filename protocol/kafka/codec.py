"""Requests and responses: headers, and bodies by Kafka's message definitions.

Frame layouts: https://kafka.apache.org/protocol (request header v0-v2, response header v0-v1).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple, TypeVar

from protocol.kafka.buffers import Buffer
from protocol.kafka.fields import skip_tagged_fields, take
from protocol.kafka.messages.message import Message
from protocol.kafka.schemas.decoder import Decode, compile_decoder
from protocol.kafka.schemas.encoder import Encode, Splices, compile_encoder
from protocol.kafka.schemas.schema import schema_of

M = TypeVar("M", bound=Message)

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7

_DECODE_ERRORS = (struct.error, IndexError, ValueError, OverflowError, MemoryError)

_HEADER_V0 = struct.Struct(">hhi")
_ID_IN_REQUEST = 4
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_JOIN_BELOW_BYTES = 16_384
"""If the average size of the chunks is below this, they are joined: few large buffers suit a system call best."""


class MalformedRequest(ValueError):
    """The bytes of a request do not follow its schema."""


class RequestHeader(NamedTuple):
    """Request header v0-v2; ``body`` is the position of the first byte behind it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def parse_fixed_header(frame: memoryview) -> tuple[int, int, int]:
    """The first 8 bytes of a request: (api key, api version, correlation id)."""
    try:
        return _HEADER_V0.unpack_from(frame, 0)
    except struct.error as error:
        raise MalformedRequest("request header is cut off") from error


def parse_header(frame: memoryview, *, flexible: bool) -> RequestHeader:
    """Parse a request header; ``flexible``: the body, and therefore the header, has tagged fields (KIP-482)."""
    api_key, api_version, correlation_id = parse_fixed_header(frame)
    position = _HEADER_V0.size
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return RequestHeader(api_key, api_version, correlation_id, None, position)
    try:
        (length,) = _SHORT.unpack_from(frame, position)
        position += _SHORT.size
        client_id = None
        if length >= 0:
            client_id = str(take(frame, position, length), "utf-8")
            position += length
        if flexible:
            position = skip_tagged_fields(frame, position)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedRequest(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def decode_request(message: type[M], version: int, frame: memoryview, position: int) -> M:
    """Decode the body of a request from ``position`` on; bytes behind the last field are ignored, as Kafka does."""
    try:
        request, end = _decoder(message, version)(frame, position)
    except _DECODE_ERRORS as error:
        raise MalformedRequest(f"{message.__name__} v{version}: {error}") from error
    if end > len(frame):
        raise MalformedRequest(f"{message.__name__} v{version}: the body is cut off")
    decoded: M = request
    return decoded


def encode_response(message: type[Message], version: int, correlation_id: int, response: object) -> list[Buffer]:
    """Encode a response frame, length first, as buffers to be written in order.

    ``response`` is any object with the message's field names as attributes; struct arrays may hold such objects too.
    """
    tagged_header = is_flexible(message, version) and message.API_KEY != API_VERSIONS
    header = _INT.pack(correlation_id) + (b"\0" if tagged_header else b"")
    return _encode_frame(header, _encoder(message.__name__, version), response)


def encode_request(
    message: type[Message], version: int, correlation_id: int, client_id: str | None, request: object
) -> list[Buffer]:
    """Encode a request frame, length first, of any object with the message's field names as attributes."""
    name = None if client_id is None else client_id.encode()
    header = _HEADER_V0.pack(message.API_KEY, version, correlation_id) + _SHORT.pack(-1 if name is None else len(name))
    header += (name or b"") + (b"\0" if is_flexible(message, version) else b"")
    return _encode_frame(header, _encoder(message.__name__, version), request)


def decode_response(message: type[M], version: int, frame: memoryview) -> M:
    """Decode a response from its correlation id on. Raises MalformedRequest."""
    position = _INT.size
    if is_flexible(message, version) and message.API_KEY != API_VERSIONS:
        try:
            position = skip_tagged_fields(frame, position)
        except (IndexError, ValueError) as error:
            raise MalformedRequest(f"response header: {error}") from error
    return decode_request(message, version, frame, position)


def readdress_request(frame: bytearray, correlation_id: int) -> list[Buffer]:
    """The frame with its length, to be forwarded with another correlation id, which is written into `frame`."""
    return _readdress(frame, _ID_IN_REQUEST, correlation_id)


def readdress_response(frame: bytearray, correlation_id: int) -> list[Buffer]:
    """The same for a response."""
    return _readdress(frame, 0, correlation_id)


def _readdress(frame: bytearray, position: int, correlation_id: int) -> list[Buffer]:
    _INT.pack_into(frame, position, correlation_id)
    length = _INT.pack(len(frame))
    return [length + frame] if len(frame) < _JOIN_BELOW_BYTES else [length, frame]


def is_flexible(message: type[Message], version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return version in schema_of(message.__name__).flexible_versions


_decoders: dict[tuple[type[Message], int], Decode] = {}
"""The decoders that have been compiled so far."""


def prepare(request: type[Message], response: type[Message], version: int) -> None:
    """Compile the codecs of an API's version now, instead of when they are first used."""
    _decoder(request, version)
    _encoder(response.__name__, version)


def _decoder(message: type[Message], version: int) -> Decode:
    decode = _decoders.get((message, version))
    if decode is None:
        decode = _decoders[message, version] = compile_decoder(schema_of(message.__name__), version, message)
    return decode


@cache
def _encoder(message: str, version: int) -> Encode:
    return compile_encoder(schema_of(message), version)


def _encode_frame(header: bytes, encode: Encode, message: object) -> list[Buffer]:
    parts: list[Buffer] = [b"", header]
    splices: Splices = []
    encode(message, parts, splices)
    size_bytes = sum(map(len, parts))
    if not splices:
        parts[0] = _INT.pack(size_bytes)
        return [b"".join(parts)]
    total = size_bytes + sum(records.size_bytes for _, records in splices)
    parts[0] = _INT.pack(total)
    buffers = _spliced(parts, splices)
    return [b"".join(buffers)] if total < _JOIN_BELOW_BYTES * len(buffers) else buffers


def _spliced(parts: list[Buffer], splices: Splices) -> list[Buffer]:
    """The bytes between records, joined to one buffer each, and the records without a copy."""
    buffers: list[Buffer] = []
    start = 0
    for position, records in splices:
        buffers.append(b"".join(parts[start:position]))
        buffers.extend(records.chunks)
        start = position
    if start < len(parts):
        buffers.append(b"".join(parts[start:]))
    return buffers
