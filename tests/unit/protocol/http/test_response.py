"""Responses of HTTP servers, whole and in pieces, and bytes that are none."""

from __future__ import annotations

import pytest

from protocol.http.response import MAX_CHUNK_HEAD_BYTES, MAX_HEAD_BYTES, HttpResponse, MalformedResponse, ResponseParser

MAX_BODY_BYTES = 100
OF_KNOWN_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
IN_CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nhell\r\nB;note=x\r\no, world!!!\r\n0\r\nTrailer: 1\r\n\r\n"
)


def parse(data: bytes, *, step: int = 1 << 20, without_body: bool = False, eof: bool = False) -> HttpResponse | None:
    parser, response = ResponseParser(MAX_BODY_BYTES, without_body=without_body), None
    for start in range(0, len(data), step):
        assert response is None
        response = parser.feed(data[start : start + step])
    return parser.feed_eof() if eof and response is None else response


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize(("data", "body"), [(OF_KNOWN_LENGTH, b"hello"), (IN_CHUNKS, b"hello, world!!!")])
def test_a_response_may_arrive_in_pieces(data: bytes, body: bytes, step: int) -> None:
    response = parse(data, step=step)
    assert response is not None
    assert (response.status, response.reason, response.body, response.keeps_alive) == (200, "OK", body, True)


@pytest.mark.parametrize("data", [OF_KNOWN_LENGTH, IN_CHUNKS])
def test_no_part_of_a_response_is_a_response(data: bytes) -> None:
    assert [parse(data[:end], eof=True) for end in range(1, len(data))] == [None] * (len(data) - 1)


def test_names_of_headers_are_in_lower_case() -> None:
    response = parse(b"HTTP/1.1 200 OK\r\nX-Pulsar-Index: 7 \r\ncontent-length:0\r\n\r\n")
    assert response is not None
    assert response.headers == {"x-pulsar-index": "7", "content-length": "0"}


def test_the_response_to_head_has_no_body() -> None:
    response = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n", without_body=True)
    assert response is not None
    assert (response.status, response.reason, response.body, response.keeps_alive) == (404, "Not Found", b"", True)


def test_responses_without_content_have_no_body() -> None:
    response = parse(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert response is not None
    assert (response.body, response.keeps_alive) == (b"", True)


def test_interim_responses_are_skipped() -> None:
    response = parse(b"HTTP/1.1 100 Continue\r\n\r\n" + OF_KNOWN_LENGTH, step=1)
    assert response is not None
    assert response.status == 200


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    data = b"HTTP/1.1 200 OK\r\n\r\nhel"
    assert parse(data) is None
    response = parse(data, eof=True)
    assert response is not None
    assert (response.body, response.keeps_alive) == (b"hel", False)


@pytest.mark.parametrize(
    ("first_lines", "keeps_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive", True),
    ],
)
def test_whether_the_connection_stays_open(first_lines: bytes, keeps_alive: bool) -> None:
    response = parse(first_lines + b"\r\nContent-Length: 0\r\n\r\n")
    assert response is not None
    assert response.keeps_alive == keeps_alive


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * MAX_CHUNK_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
        OF_KNOWN_LENGTH + b"more",
        IN_CHUNKS + b"more",
    ],
)
def test_what_is_no_response(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parse(data)
