"""Requests and responses: kafka-python's compiled schemas, hardened for a server.

kafka-python is a client: its decoders trust the peer, and copy every record set. A server does neither. Two things
are changed here, before any schema is compiled, and nowhere else:

* strings, byte fields and varints are bounds-checked (the client's decoders accept a truncated last field and an
  endless varint), and what may not be null is not;
* the ``Records`` of a Fetch response are spliced between the encoded parts instead of copied into them.

Frame layouts: https://kafka.apache.org/protocol (request header v0-v2, response header v0-v1).
"""

from __future__ import annotations

import io
import struct
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.schemas.fields.array import ArrayField
from kafka.protocol.schemas.fields.codecs import types as codecs
from kafka.protocol.schemas.fields.codecs.encode_buffer import EncodeBuffer
from kafka.protocol.schemas.fields.codecs.tagged_fields import TaggedFields
from kafka.protocol.schemas.fields.simple import SimpleField
from kafka.protocol.schemas.fields.struct import StructField
from kafka.protocol.schemas.fields.struct_array import StructArrayField

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7
MAX_TAGGED_FIELDS = 1_000

Buffer = bytes | bytearray | memoryview

_compiling = threading.Lock()
"""kafka-python keeps the class that it compiles for in the schema meanwhile, and requests are decoded in threads."""

_DECODE_ERRORS = (
    struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError, AttributeError,
    AssertionError,  # tagged fields within a tagged field
)  # fmt: skip

_HEADER_V0 = struct.Struct(">hhi")
_ID_IN_REQUEST = 4
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_ENCODE_BUFFER_BYTES = 65_536
_KEEP_BELOW_BYTES = 4 * 1024 * 1024
"""A buffer that a message has made larger is given up behind it."""
_JOIN_BELOW_BYTES = 16_384
"""Chunks that are smaller on average than this are joined: a system call handles few large buffers best."""


_READ_AS_NONE = ("uuid", "bitfield")
"""Types whose zero, or lowest number, kafka-python reads as None."""


class MalformedRequest(ValueError):
    """The bytes of a request do not follow its schema."""


class RequestHeader(NamedTuple):
    """Request header v0-v2; ``body`` is the position of the first byte behind it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


class RecordChunks(NamedTuple):
    """Record batches that lie in several buffers; they are sent one after the other and never copied together."""

    chunks: Sequence[Buffer]
    size_bytes: int


def parse_fixed_header(frame: memoryview) -> tuple[int, int, int]:
    """The first 8 bytes of a request: (api key, api version, correlation id)."""
    try:
        return _HEADER_V0.unpack_from(frame, 0)
    except struct.error as error:
        raise MalformedRequest("request header is cut off") from error


def parse_header(frame: memoryview, *, flexible: bool) -> RequestHeader:
    """Parse a request header; ``flexible`` says that the body, and so the header, carries tagged fields (KIP-482)."""
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


def decode_request(message: Any, version: int, frame: memoryview, position: int) -> Any:
    """Decode the body of a request from ``position`` on; bytes behind the last field are ignored, as Kafka does."""
    decode = _decoder(message, version)
    try:
        request, end = decode(frame, position)
    except _DECODE_ERRORS as error:
        raise MalformedRequest(f"{message.__name__} v{version}: {error}") from error
    if end > len(frame):
        raise MalformedRequest(f"{message.__name__} v{version}: the body is cut off")
    return request


def encode_response(message: Any, version: int, correlation_id: int, response: Any) -> list[Buffer]:
    """Encode a response frame, length first, as buffers to be written in order.

    ``response`` is any object with the schema's field names as attributes; struct arrays may hold such objects too.
    """
    tagged_header, encode_into = _encoder(message, version)
    header = _INT.pack(correlation_id) + (b"\0" if tagged_header else b"")
    return _encode_frame(header, encode_into, response)


def encode_request(
    message: Any, version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[Buffer]:
    """Encode a request frame, length first, of any object with the schema's field names as attributes."""
    name = None if client_id is None else client_id.encode()
    header = _HEADER_V0.pack(message.API_KEY, version, correlation_id) + _SHORT.pack(-1 if name is None else len(name))
    flexible = is_flexible(message, version)
    return _encode_frame(header + (name or b"") + (b"\0" if flexible else b""), _encoder(message, version)[1], request)


def decode_response(message: Any, version: int, frame: memoryview) -> Any:
    """Decode a response from its correlation id on. Raises MalformedRequest."""
    position = _INT.size
    if _encoder(message, version)[0]:
        try:
            position = skip_tagged_fields(frame, position)
        except (IndexError, ValueError) as error:
            raise MalformedRequest(f"response header: {error}") from error
    return decode_request(message, version, frame, position)


def readdress_request(frame: bytearray, correlation_id: int) -> list[Buffer]:
    """The frame with its length, to be sent on under another correlation id, which is written into it."""
    return _readdress(frame, _ID_IN_REQUEST, correlation_id)


def readdress_response(frame: bytearray, correlation_id: int) -> list[Buffer]:
    """The same of a response."""
    return _readdress(frame, 0, correlation_id)


def _readdress(frame: bytearray, position: int, correlation_id: int) -> list[Buffer]:
    _INT.pack_into(frame, position, correlation_id)
    length = _INT.pack(len(frame))
    return [length + frame] if len(frame) < _JOIN_BELOW_BYTES else [length, frame]


@cache
def is_flexible(message: Any, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return bool(message.flexible_version_q(version))


@cache
def _decoder(message: Any, version: int) -> Any:
    flexible = is_flexible(message, version)
    with _compiling:
        return message._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=message)


@cache
def _encoder(message: Any, version: int) -> tuple[bool, Any]:
    """(the response header has tagged fields, encode)."""
    flexible = is_flexible(message, version)
    with _compiling:
        encode_into = message._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)
    return flexible and message.API_KEY != API_VERSIONS, encode_into


class _ResponseBuffer(EncodeBuffer):  # type: ignore[misc]
    """One buffer for all responses of a thread: encoding never yields to another one."""

    __slots__ = ("splices",)

    def __init__(self) -> None:
        super().__init__()
        self.splices: list[tuple[int, RecordChunks]] = []


def _encode_frame(header: bytes, encode_into: Any, message: Any) -> list[Buffer]:
    out = _of_thread.buffer
    out.splices.clear()
    out.pos = _INT.size
    out.ensure(len(header))
    out.pos += len(header)
    out.buf[_INT.size : out.pos] = header
    encode_into(message, out)
    _INT.pack_into(out.buf, 0, out.pos - _INT.size + sum(records.size_bytes for _, records in out.splices))
    parts = _cut(out)
    if len(out.buf) > _KEEP_BELOW_BYTES:
        out.buf = bytearray(_ENCODE_BUFFER_BYTES)
    return parts


def _cut(out: _ResponseBuffer) -> list[Buffer]:
    if not out.splices:
        return [bytes(memoryview(out.buf)[: out.pos])]
    parts: list[Buffer] = []
    start = 0
    for position, records in out.splices:
        if position > start:
            parts.append(bytes(memoryview(out.buf)[start:position]))
        parts.extend(records.chunks)
        start = position
    if out.pos > start:
        parts.append(bytes(memoryview(out.buf)[start : out.pos]))
    total = out.pos + sum(records.size_bytes for _, records in out.splices)
    return [b"".join(parts)] if total < _JOIN_BELOW_BYTES * len(parts) else parts


_Arrays = tuple[tuple[str, bool, Any], ...]
"""Fields that are arrays, or hold some: name, whether it is one itself, and those of its structs."""


def has_more_rows(schema: Any, message: Any, limit: int) -> bool:
    """Whether the arrays of a message hold more than so many values, all levels counted; stops when it knows."""
    return count_values(schema, message, limit) > limit


def count_values(schema: Any, message: Any, limit: int = sys.maxsize) -> int:
    """How many values the arrays of a message hold, all levels counted; or some number beyond the limit."""
    count, unseen = 0, [(_arrays(schema), message)]
    while unseen and count <= limit:
        fields, struct_ = unseen.pop()
        for name, is_array, inner in fields:
            value = getattr(struct_, name, None)
            if value is None:
                continue
            if is_array:
                count += len(value)
            if inner:
                unseen += [(inner, each) for each in value] if is_array else [(inner, value)]
    return count


@cache
def _arrays(schema: Any) -> _Arrays:
    return _arrays_of(schema._struct.fields)


def _arrays_of(fields: Any) -> _Arrays:
    each = fields.values() if isinstance(fields, dict) else fields or ()
    found = ((field.name, bool(field.is_array()), _arrays_of(field.fields)) for field in each)
    return tuple((name, is_array, inner) for name, is_array, inner in found if is_array or inner)


def take(data: memoryview, position: int, length: int) -> memoryview:
    """A view of the next bytes. Raises IndexError if they are not all there."""
    end = position + length
    if length < 0 or end > len(data):
        raise IndexError("a field is longer than its message")
    return data[position:end]


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """(an unsigned varint of at most five bytes, the position behind it). Raises IndexError or ValueError."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a varint is longer than five bytes")


def skip_tagged_fields(data: memoryview, position: int) -> int:
    """The position behind a struct's tagged fields (KIP-482). Raises IndexError or ValueError."""
    if data[position] == 0:
        return position + 1
    count, position = read_varint(data, position)
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"{count} tagged fields")
    for _ in range(count):
        _tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        take(data, position, size)
        position += size
    return position


def _tagged_fields_extent(data: memoryview, position: int) -> bytes:
    return bytes(data[position : skip_tagged_fields(data, position)])


def _emit_varint(_cls: Any, ctx: Any, name: str, indent: str) -> None:
    ctx.globs["read_varint"] = read_varint
    ctx.emit(indent, f"{name} = data[pos]")
    ctx.emit(indent, f"if {name} < 128: pos += 1")
    ctx.emit(indent, f"else: {name}, pos = read_varint(data, pos)")


def _emit_length(ctx: Any, indent: str, *, compact: bool, short: bool) -> str:
    length = ctx.next_var("ln")
    if compact:
        codecs.UnsignedVarInt32.emit_decode_from(ctx, length, indent)
        ctx.emit(indent, f"{length} -= 1")
    else:
        ctx.emit(indent, f'{length} = unpack_from("{">h" if short else ">i"}", data, pos)[0]')
        ctx.emit(indent, f"pos += {2 if short else 4}")
    ctx.globs["take"] = take
    return str(length)


def _emit_field(ctx: Any, name: str, indent: str, length: str, expression: str) -> None:
    ctx.emit(indent, f"if {length} < 0: {name} = None")
    ctx.emit(indent, "else:")
    ctx.emit(indent, f"    {name} = {expression % f'take(data, pos, {length})'}")
    ctx.emit(indent, f"    pos += {length}")


def _emit_string(_self: Any, ctx: Any, name: str, indent: str, compact: bool = False) -> None:
    length = _emit_length(ctx, indent, compact=compact, short=True)
    _emit_field(ctx, name, indent, length, 'str(%s, "utf-8")')


def _emit_bytes(_cls: Any, ctx: Any, name: str, indent: str, compact: bool = False) -> None:
    length = _emit_length(ctx, indent, compact=compact, short=False)
    _emit_field(ctx, name, indent, length, "bytes(%s)")


def _refusing_null(kind: Any) -> Any:
    """The decoder of a kind of field that may be null only where its schema says so."""
    emit_plain = kind.emit_decode_from

    def emit(
        self: Any, ctx: Any, name: str, indent: str, version: int, compact: bool = False, tagged: bool = False
    ) -> None:
        may_be_null = self.nullable_for_version_q(version) or self.type_str in _READ_AS_NONE
        if self.is_array() and not compact and not may_be_null:  # any negative size is null
            ctx.emit(indent, f"if data[pos] > 127: raise ValueError('{self.name} is null')")
        emit_plain(self, ctx, name, indent, version=version, compact=compact, tagged=tagged)
        if not may_be_null:
            ctx.emit(indent, f"if {name} is None: raise ValueError('{self.name} is null')")

    return emit


def _emit_tagged_decode(self: Any, ctx: Any, name: str, indent: str, version: int) -> None:
    """Decode tagged fields from their own extent: the client copies all that is left of the frame, for each struct."""
    fields = ctx.next_var("tf")
    ctx.globs[fields] = self.tagged_fields(version)
    ctx.globs["_decode_tags"] = _decode_tags
    ctx.emit(indent, f"pos = _decode_tags({fields}, {name}, data, pos, {version})")


def _decode_tags(fields: TaggedFields, target: Any, data: memoryview, position: int, version: int) -> int:
    extent = _tagged_fields_extent(data, position)
    for name, value in fields.decode(io.BytesIO(extent), version=version).items():
        if not name.startswith("_"):
            setattr(target, name, value)
    return position + len(extent)


class _SplicedRecords(codecs.Bytes):  # type: ignore[misc]
    """Encodes the length, and remembers where the bytes of a RecordChunks belong."""

    @classmethod
    def emit_encode_into(cls, ctx: Any, value: str, indent: str, compact: bool = False) -> None:
        ctx.emit_reserve(indent, 5)
        ctx.emit(indent, "out.pos = pos")
        ctx.globs["_splice"] = _splice_compact if compact else _splice
        ctx.emit(indent, f"_splice(out, {value})")
        ctx.emit(indent, "pos = out.pos")


def _splice(out: _ResponseBuffer, records: RecordChunks | None) -> None:
    _INT.pack_into(out.buf, out.pos, -1 if records is None else records.size_bytes)
    out.pos += _INT.size
    if records:
        out.splices.append((out.pos, records))


def _splice_compact(out: _ResponseBuffer, records: RecordChunks | None) -> None:
    codecs.UnsignedVarInt32.encode_into(out, 0 if records is None else records.size_bytes + 1)
    if records:
        out.splices.append((out.pos, records))


def _replace_records_codec(message: Any, codec: type) -> None:
    pending = list(message._struct.fields.values())
    while pending:
        field = pending.pop()
        if field.type_str == "records":
            field._type = codec
        pending.extend((field.fields or {}).values() if isinstance(field.fields, dict) else field.fields or ())


def _harden() -> None:
    codecs.UnsignedVarInt32.emit_decode_from = classmethod(_emit_varint)
    codecs.String.emit_decode_from = _emit_string
    codecs.Bytes.emit_decode_from = classmethod(_emit_bytes)
    StructField._emit_tagged_decode = _emit_tagged_decode
    for kind in (SimpleField, ArrayField, StructArrayField):
        kind.emit_decode_from = _refusing_null(kind)
    _replace_records_codec(FetchResponse, _SplicedRecords)




class _OfThread(threading.local):
    def __init__(self) -> None:
        self.buffer = _ResponseBuffer()


_of_thread = _OfThread()
_harden()
