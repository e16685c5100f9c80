"""The fields of Fetch that are read or changed in relayed frames, compared with the schemas."""

from __future__ import annotations

import pytest

from protocol.kafka.codec import (
    MalformedRequest,
    decode_request,
    encode_request,
    encode_response,
    is_flexible,
    parse_header,
)
from protocol.kafka.handwritten.fetch_request import limit_max_bytes, set_session_id
from protocol.kafka.handwritten.fetch_response import session_id
from protocol.kafka.messages.records import FetchRequest, FetchResponse

VERSIONS = range(18)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "a client"])
def test_max_bytes_is_lowered_in_place(version: int, client_id: str | None) -> None:
    request = FetchRequest(
        replica_id=-1, max_wait_ms=11, min_bytes=12, max_bytes=13, isolation_level=0, session_id=0, session_epoch=-1,
        topics=[], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    frame = bytearray(b"".join(encode_request(FetchRequest, version, 5, client_id, request)))[4:]
    for limit, expected in ((20, 13), (1, 1)):
        limit_max_bytes(frame, version, limit)
        header = parse_header(memoryview(frame), flexible=is_flexible(FetchRequest, version))
        found = decode_request(FetchRequest, version, memoryview(frame), header.body)
        assert (found.max_wait_ms, found.min_bytes) == (11, 12)
        if version >= 3:
            assert found.max_bytes == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "a client"])
def test_the_session_of_a_request_is_replaced_in_place(version: int, client_id: str | None) -> None:
    request = FetchRequest(
        replica_id=-1, max_wait_ms=11, min_bytes=12, max_bytes=13, isolation_level=1, session_id=0, session_epoch=5,
        topics=[], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    frame = bytearray(b"".join(encode_request(FetchRequest, version, 5, client_id, request)))[4:]
    set_session_id(frame, version, 1_234)
    request.session_id = 1_234
    assert frame == bytearray(b"".join(encode_request(FetchRequest, version, 5, client_id, request)))[4:]


def test_a_request_that_is_cut_off() -> None:
    with pytest.raises(MalformedRequest):
        limit_max_bytes(bytearray(b"\0\1\0\4\0\0\0\0\0\0"), 4, 1)
    with pytest.raises(MalformedRequest):
        set_session_id(bytearray(b"\0\1\0\7\0\0\0\0\0\0"), 7, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_session(version: int) -> None:
    response = FetchResponse(throttle_time_ms=9, error_code=0, session_id=1_234, responses=[])
    frame = memoryview(b"".join(encode_response(FetchResponse, version, 5, response)))[4:]
    assert session_id(version, frame) == (1_234 if version >= 7 else 0)
    if version >= 7:
        with pytest.raises(ValueError, match="cut off"):
            session_id(version, frame[:8])
