"""Cuts the responses of an HTTP/1.1 server out of the bytes of a connection (RFC 9112): one response at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_HEAD_BYTES = 64 * 1024
"""The largest status line with headers that is accepted."""
MAX_CHUNK_HEAD_BYTES = 256
"""The longest line with the length of a chunk, and the longest trailer line."""
_END_OF_LINE, _END_OF_HEAD = b"\r\n", b"\r\n\r\n"
_NO_BODY = frozenset({204, 304})


class MalformedResponse(Exception):
    """The bytes are no response, or a limit is exceeded: nothing more can be read from the connection."""


class HttpResponse(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    """By names in lower case. Of several headers with the same name, the last one."""
    body: bytes
    keeps_alive: bool
    """Whether the server accepts another request over the connection."""


class _Head(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    keeps_alive: bool


class ResponseParser:
    """Parses one response. Create another parser for the next one."""

    def __init__(self, max_body_bytes: int, *, without_body: bool = False) -> None:
        """``without_body`` is for the response to a HEAD request, which has the headers of a body, but no body."""
        self._max_body_bytes = max_body_bytes
        self._without_body = without_body
        self._received = bytearray()
        self._head: _Head | None = None
        self._left: int | None = None
        """The bytes of the body that are still to come; None if only the end of the connection shows the end."""
        self._chunks: _Chunks | None = None

    def feed(self, data: bytes) -> HttpResponse | None:
        """The response when it is complete. Raises MalformedResponse, also if bytes follow the response."""
        self._received += data
        if self._head is None and not self._begin():
            return None
        assert self._head is not None
        if self._chunks is not None:
            return self._end(self._chunks.body) if self._chunks.take(self._received) else None
        if len(self._received) > self._max_body_bytes:
            raise MalformedResponse(f"response of more than {self._max_body_bytes} bytes")
        if self._left is None or len(self._received) < self._left:
            return None
        if len(self._received) > self._left:
            raise MalformedResponse("bytes after the response")
        return self._end(self._received)

    def feed_eof(self) -> HttpResponse | None:
        """The server has closed the connection: the response if this completes it."""
        if self._head is None or self._left is not None or self._chunks is not None:
            return None
        return self._end(self._received)

    def _begin(self) -> bool:
        """Whether the head is complete. Interim responses (1xx) are skipped."""
        while True:
            end = self._received.find(_END_OF_HEAD, 0, MAX_HEAD_BYTES)
            if end < 0:
                if len(self._received) >= MAX_HEAD_BYTES:
                    raise MalformedResponse(f"head of more than {MAX_HEAD_BYTES} bytes")
                return False
            head = _parse_head(bytes(self._received[:end]))
            del self._received[: end + len(_END_OF_HEAD)]
            if head.status >= 200:
                break
        self._head = head
        if self._without_body or head.status in _NO_BODY:
            self._left = 0
        elif (coding := head.headers.get("transfer-encoding")) is not None:
            if coding.lower() != "chunked":
                raise MalformedResponse(f"transfer encoding: {coding[:50]!r}")
            self._chunks = _Chunks(self._max_body_bytes)
        elif (length := head.headers.get("content-length")) is not None:
            self._left = _number(length, 10)
            if self._left > self._max_body_bytes:
                raise MalformedResponse(f"response of more than {self._max_body_bytes} bytes")
        return True

    def _end(self, body: bytearray) -> HttpResponse:
        assert self._head is not None
        status, reason, headers, keeps_alive = self._head
        ends_here = self._left is not None or self._chunks is not None
        return HttpResponse(status, reason, headers, bytes(body), keeps_alive and ends_here)


class _Chunks:
    """A body in chunks: each begins with its length in hexadecimal digits; an empty one, and trailers, are the end."""

    def __init__(self, max_bytes: int) -> None:
        self.body = bytearray()
        self._max_bytes = max_bytes
        self._left = 0
        """The bytes of the chunk that are still to come."""
        self._after_data = False
        """The end of line after a chunk's bytes comes next."""
        self._in_trailers = False

    def take(self, received: bytearray) -> bool:
        """Take what has arrived out of ``received``. Returns whether the body is complete."""
        while True:
            data = received[: self._left]
            self.body += data
            self._left -= len(data)
            del received[: len(data)]
            if self._left:
                return False
            end = received.find(_END_OF_LINE, 0, MAX_CHUNK_HEAD_BYTES)
            if end < 0:
                if len(received) >= MAX_CHUNK_HEAD_BYTES:
                    raise MalformedResponse("endless line between chunks")
                return False
            line = bytes(received[:end])
            del received[: end + len(_END_OF_LINE)]
            if self._take_line(line):
                if received:
                    raise MalformedResponse("bytes after the response")
                return True

    def _take_line(self, line: bytes) -> bool:
        """Returns whether the body ends with this line."""
        if self._after_data:
            if line:
                raise MalformedResponse("a chunk is longer than its length")
            self._after_data = False
            return False
        if self._in_trailers:
            return not line
        self._left = _number(line.partition(b";")[0].strip().decode("latin-1"), 16)
        self._in_trailers, self._after_data = self._left == 0, self._left > 0
        if len(self.body) + self._left > self._max_bytes:
            raise MalformedResponse(f"response of more than {self._max_bytes} bytes")
        return False


def _parse_head(head: bytes) -> _Head:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3:
        raise MalformedResponse(f"no status line: {first[:50]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[0] in " \t":
            raise MalformedResponse(f"no header: {line[:50]!r}")
        headers[name.lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    keeps_alive = connection != "close" and (version == "HTTP/1.1" or connection == "keep-alive")
    return _Head(_number(code, 10), reason, headers, keeps_alive)


def _number(text: str, base: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or len(text) > 15 or any(each not in digits for each in text.lower()):
        raise MalformedResponse(f"no number: {text[:50]!r}")
    return int(text, base)
