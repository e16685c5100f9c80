"""Request decoders with arbitrary and damaged bytes: only MalformedRequest, within bounded time and memory."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.handlers.table import APIS
from gateway.requests.call import Api
from protocol.kafka.codec import MalformedRequest, decode_request, parse_fixed_header, parse_header
from tests.support.schema_values import ALL_VERSIONS, encode, name_of, values, witness

FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_version = pytest.mark.parametrize(("api", "version"), ALL_VERSIONS, ids=name_of)
FETCH = APIS[1]

MAX_PEAK_BYTES = 100_000
"""For decoding a few dozen bytes."""
HUGE_COUNTS = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\0\0\0\0\x7f\xff\xff\xff",
    b"\x02\xff\xff\xff\xff\x07",
]

huge_counts = st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0"])
endless_varint = st.just(b"\xff" * 12)
damage = st.binary(min_size=1, max_size=8) | huge_counts | endless_varint


def check(api: Api, version: int, body: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        decode_request(api.request, version, memoryview(body), 0)


@every_version
@FUZZ
@given(body=st.binary(max_size=200) | st.lists(damage, max_size=10).map(b"".join))
def test_arbitrary_bytes(api: Api, version: int, body: bytes) -> None:
    check(api, version, body)


@every_version
@FUZZ
@given(data=st.data())
def test_damaged_requests(api: Api, version: int, data: st.DataObject) -> None:
    body = bytearray(encode(api.request, version, data.draw(values(api.request, version))))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(start, min(len(body), start + 8)))
        body[start:end] = data.draw(damage)
    check(api, version, bytes(body))


@every_version
def test_a_count_costs_nothing_without_its_elements(api: Api, version: int) -> None:
    bodies = [count * repeats for count in HUGE_COUNTS for repeats in (1, 2, 8)]
    check(api, version, bodies[0])  # compiles the codec
    tracemalloc.start()
    try:
        for body in bodies:
            tracemalloc.reset_peak()
            before_bytes, _ = tracemalloc.get_traced_memory()
            check(api, version, body)
            assert tracemalloc.get_traced_memory()[1] - before_bytes < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()


def test_many_tagged_fields_are_refused() -> None:
    body = bytearray(encode(APIS[18].request, 3, {"client_software_name": "", "client_software_version": ""}))
    fields = b"\x05\x00" * 1_001
    with pytest.raises(MalformedRequest):
        decode_request(APIS[18].request, 3, memoryview(bytes(body[:-1]) + b"\xe9\x07" + fields), 0)


def test_fields_within_a_tagged_field_are_checked() -> None:
    """Replica state is a struct within tag 1; it says that it has tagged fields of its own."""
    value = {part.name: None for part in witness(FETCH.request).tagged_fields(15)._fields} | {
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "session_id": 0, "session_epoch": 0,
        "topics": [], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    body = encode(FETCH.request, 15, value)
    assert body[-1:] == b"\0"
    replica_state = struct.pack(">iq", 1, 2)
    for nested in (b"\x01\x00\x00", b"\x01", b"", b"\xff" * 9):
        tagged = b"\x01\x01" + bytes([len(replica_state + nested)]) + replica_state + nested
        check(FETCH, 15, body[:-1] + tagged)


@FUZZ
@given(frame=st.binary(max_size=40), flexible=st.booleans())
@example(frame=b"\x00\x07\x00\x00\x00\x00\x00\x01", flexible=False)
def test_headers(frame: bytes, flexible: bool) -> None:
    with contextlib.suppress(MalformedRequest):
        parse_fixed_header(memoryview(frame))
    with contextlib.suppress(MalformedRequest):
        header = parse_header(memoryview(frame), flexible=flexible)
        assert 8 <= header.body <= len(frame)
