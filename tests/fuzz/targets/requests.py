"""Requests of every API and version, from the first byte after the length; and responses of other gateways."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher
from gateway.handlers.cluster.api_versions import UnknownVersion
from gateway.handlers.table import APIS
from gateway.requests.call import Api
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener
from protocol.framing import NOT_A_FRAME, FrameReceiver
from protocol.kafka import codec
from protocol.kafka.codec import MalformedRequest, decode_request, decode_response, encode_response, is_flexible
from protocol.kafka.handwritten.fetch_request import FIRST_BOUNDED_VERSION, limit_max_bytes
from protocol.kafka.handwritten.fetch_response import session_id
from protocol.kafka.handwritten.list_offsets_response import FIRST_VERSION, encode_listed
from protocol.kafka.handwritten.produce_request import MAX_PARTITIONS
from protocol.kafka.handwritten.produce_response import encode_written, is_written
from protocol.proxy.header import Endpoint, MalformedProxyHeaderError, encode_gateway_header, parse_proxy_header
from tests.fuzz.target import Target, reason
from tests.fuzz.values import encoded
from tests.support.schema_values import ALL_VERSIONS

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
SEEDS_EACH = 3
MAX_FRAME_BYTES = 1 << 20

_DISPATCHER = Dispatcher(cast(Cluster, SimpleNamespace(config=Config())))
_CONTEXT = _DISPATCHER.context(Client("127.0.0.1:1"), Listener(""))


def _request_seeds(random: Random) -> Sequence[bytes]:
    return [
        _header(api, version) + encoded(api.request, version, random)
        for api, version in ALL_VERSIONS
        for _ in range(SEEDS_EACH)
    ]


def _header(api: Api, version: int) -> bytes:
    header = struct.pack(">hhih", api.key, version, 7, 2) + b"id"
    return header + b"\0" if is_flexible(api.request, version) else header


def check_request(data: bytes) -> str:
    frame = bytearray(data)
    try:
        call = _DISPATCHER.begin(frame, _CONTEXT)
    except MalformedRequest as error:
        _check_refused(data)
        return f"{_letter(data[3])} {reason(error)}" if len(data) > 8 else reason(error)
    if not isinstance(call.request, UnknownVersion):
        if call.api.key == PRODUCE:
            _check_produce(data, call.version, call.request)
        elif call.api.key == FETCH:
            _check_limited(frame, call.version, call.request)
        if zlib.crc32(data) % 8 == 0:
            _check_round_trip(call.api, call.version, call.request)
    return f"{call.api.name} {_letter(call.version)}"


def _letter(version: int) -> str:
    """Campaigns ignore digits."""
    return chr(ord("a") + version % 26)


def _generic_produce(data: bytes) -> Any:
    view = memoryview(data)
    api, version = APIS[PRODUCE], codec.parse_fixed_header(view)[1]
    header = codec.parse_header(view, flexible=is_flexible(api.request, version))
    return decode_request(api.request, version, view, header.body)


def _check_produce(data: bytes, version: int, request: Any) -> None:
    """The handwritten decoder and that of the schema agree."""
    generic = _generic_produce(data)
    assert (generic.acks, generic.timeout_ms) == (request.acks, request.timeout_ms)
    assert version < 3 or generic.transactional_id == request.transactional_id
    assert _rows(generic) == _rows(request)


def _rows(request: Any) -> list[tuple[Any, ...]]:
    return [
        (topic.name, row.index, None if row.records is None else bytes(row.records))
        for topic in request.topic_data
        for row in topic.partition_data
    ]


def _check_refused(data: bytes) -> None:
    """The schema does not accept what the handwritten decoder refuses, unless it is too large."""
    if data[:2] != b"\0\0" or len(data) > MAX_PARTITIONS:
        return
    try:
        api, version = APIS[PRODUCE], codec.parse_fixed_header(memoryview(data))[1]
        if api.min_version <= version <= api.max_version:
            _generic_produce(data)
            raise AssertionError("a Produce request that the schema takes is refused")
    except MalformedRequest:
        pass


def _check_limited(frame: bytearray, version: int, request: Any) -> None:
    if version < FIRST_BOUNDED_VERSION:
        return
    expected = min(request.max_bytes, 1)
    limit_max_bytes(frame, version, 1)
    limited: Any = _DISPATCHER.begin(frame, _CONTEXT).request
    assert limited.max_bytes == expected
    limited.max_bytes = request.max_bytes
    assert limited == request


def _check_round_trip(api: Api, version: int, request: Any) -> None:
    if api.key == PRODUCE:
        return
    frame = b"".join(codec.encode_request(api.request, version, 7, "id", request))
    again = _DISPATCHER.begin(bytearray(frame[4:]), _CONTEXT)
    assert _are_same(again.request, request), "encoding and decoding it again gives another request"


def _are_same(one: object, other: object) -> bool:
    """Not a number, which a quota may be, is not equal to itself."""
    return one == other or ("nan" in repr(one) and repr(one) == repr(other))


def _response_seeds(random: Random) -> Sequence[bytes]:
    return [
        struct.pack(">Bb", api.key, version) + bytes(4) + _tagged(api, version) + encoded(api.response, version, random)
        for api, version in ALL_VERSIONS
        for _ in range(SEEDS_EACH)
    ]


def _tagged(api: Api, version: int) -> bytes:
    return b"\0" if is_flexible(api.response, version) and api.key != codec.API_VERSIONS else b""


def check_response(data: bytes) -> str:
    """The API, the version, then the frame from its correlation id on."""
    if len(data) < 6:
        return "short"
    api = APIS.get(data[0])
    if api is None or not api.min_version <= data[1] <= api.max_version:
        return "no such API"
    version, frame = data[1], memoryview(data)[2:]
    if api.key == FETCH:
        _session(version, frame)
    try:
        response = decode_response(api.response, version, frame)
    except MalformedRequest as error:
        return f"{_letter(version)} {reason(error)}"
    if api.key == PRODUCE:
        _check_written(version, frame, response)
    elif api.key == LIST_OFFSETS and version >= FIRST_VERSION:
        _check_listed(version, response)
    return f"{api.name} {_letter(version)}"


def _session(version: int, frame: memoryview) -> None:
    with contextlib.suppress(ValueError):
        session_id(version, frame)


def _check_written(version: int, frame: memoryview, response: Any) -> None:
    if not is_written(version, frame):
        return
    rows = [row for topic in response.responses for row in topic.partition_responses]
    assert not any(row.error_code for row in rows), "an error passes for written"
    assert len(encode_written(version, 0, response.responses, response.throttle_time_ms)) > 0


def _check_listed(version: int, response: Any) -> None:
    expected = b"".join(encode_response(APIS[LIST_OFFSETS].response, version, 7, response))
    if response.throttle_time_ms == 0:
        assert encode_listed(version, 7, response.topics) == expected


def _stream_seeds(random: Random) -> Sequence[bytes]:
    frames = [struct.pack(">i", size) + random.randbytes(size) for size in (1, 8, 40, 300, 2_000)]
    return [
        *frames, b"".join(frames[:4]), b"\0\0\0\0", b"\xff" * 9,
        struct.pack(">i", 40_000) + bytes(40_000), struct.pack(">i", MAX_FRAME_BYTES) + bytes(900),
    ]  # fmt: skip


def check_stream(data: bytes) -> str:
    """Frames are complete and unchanged however the stream is cut."""
    whole, pieces = _received(data, len(data) or 1), _received(data, 1 + len(data) // 40 + zlib.crc32(data) % 99)
    assert whole == pieces
    return f"{min(len(whole), 4)} frames, {whole[-1:] == [bytes(NOT_A_FRAME)]}".translate(_LETTERS)


_LETTERS = str.maketrans("01234", "abcde")


def _received(data: bytes, read_bytes: int) -> list[bytes]:
    shared = memoryview(bytearray(64 * 1024))
    receiver = FrameReceiver(shared, MAX_FRAME_BYTES)
    frames: list[bytes] = []
    rest = memoryview(data)
    while rest:
        buffer = receiver.get_buffer()
        count = min(len(buffer), len(rest), read_bytes)
        buffer[:count] = rest[:count]
        rest = rest[count:]
        frames += map(bytes, receiver.buffer_updated(count))
        if frames and not frames[-1]:
            break
    return frames


def _proxy_seeds(random: Random) -> Sequence[bytes]:
    signature = b"\r\n\r\n\x00\r\nQUIT\n"
    return [
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 2000\r\n" + bytes(8),
        b"PROXY TCP6 ::1 fe80::1 1000 65535\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY UNKNOWN whatever\r\n",
        signature + b"\x21\x11\x00\x0c" + random.randbytes(12),
        signature + b"\x21\x21\x00\x24" + random.randbytes(36),
        signature + b"\x20\x00\x00\x00",
        signature + b"\x21\x11\x01\x00" + random.randbytes(256),
        signature + b"\x21\x11\x00\x2c" + random.randbytes(12) + b"\x02\0\x05a.b.c" + b"\x20\0\x15\x07" + bytes(4)
        + b"\x22\0\x05alice" + b"\x21\0\x05TLSv1",
        encode_gateway_header(Endpoint("10.0.0.1", 1000), "tenant/namespace"),
        encode_gateway_header(Endpoint("", 0), "tenant/namespace"),
        encode_gateway_header(Endpoint("10.0.0.1", 1000), None, "User:alice"),
    ]


def check_proxy_header(data: bytes) -> str:
    try:
        header = parse_proxy_header(data)
    except MalformedProxyHeaderError as error:
        return reason(error)
    if header is None:
        return "incomplete"
    assert 0 < header.size_bytes <= len(data)
    assert parse_proxy_header(data[: header.size_bytes]) == header
    if header.source is not None:
        assert 0 <= header.source.port < 65_536
        assert header.source.host.isascii()
        assert set(header.source.host) <= set("0123456789abcdef.:"), header.source.host
    tls = "no TLS" if header.tls is None else f"a name: {header.tls.common_name is not None}"
    return f"{header.source is None}, {tls}, {header.authority is None}"


TARGETS = (
    Target("requests", _request_seeds, check_request),
    Target("responses", _response_seeds, check_response),
    Target("request streams", _stream_seeds, check_stream),
    Target("proxy headers", _proxy_seeds, check_proxy_header),
)
