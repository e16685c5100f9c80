"""HTTP/1.1 for the admin API: keep-alive connections, one request at a time on each.

Every log that is opened asks the admin API once. A general HTTP client takes longer for this than all the rest of the
opening.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

from protocol.http.response import HttpResponse, MalformedResponse, ResponseParser

IDLE_S = 15.0
"""An unused connection is closed after this time, before the server closes it: a request could be lost otherwise."""


class HttpError(Exception):
    """The request failed without a response."""


class CannotConnect(HttpError):
    """No connection was made: nothing was sent."""


class Origin(NamedTuple):
    """A server's address."""

    host: str
    port: int
    tls: bool


class HttpClient:
    """At most ``max_requests`` run at the same time, further ones wait. Connections are used again."""

    def __init__(
        self, max_requests: int, connect_timeout_s: float, max_body_bytes: int, tls: ssl.SSLContext | bool
    ) -> None:
        """``tls`` is the context for origins with TLS; True for the default one."""
        self._connect_timeout_s = connect_timeout_s
        self._max_body_bytes = max_body_bytes
        self._tls = tls
        self._places = asyncio.Semaphore(max_requests)
        self._unused: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._closed = False

    async def close(self) -> None:
        """Running requests fail."""
        self._closed = True
        for connection in list(self._open):
            connection.close()

    async def request(
        self, origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> HttpResponse:
        """Send a request once, and return the response. ``target`` is the path with the query, percent-encoded.

        Raises HttpError, CannotConnect, and TimeoutError after ``timeout_s``.
        """
        frame = _encode(origin, method, target, headers, body)
        async with asyncio.timeout(timeout_s), self._places:
            connection = self._take_unused(origin) or await self._connect(origin)
            try:
                response = await connection.ask(frame, without_body=method == "HEAD")
            except BaseException:
                connection.close()
                raise
            if response.keeps_alive and not self._closed:
                connection.keep()
            else:
                connection.close()
            return response

    def _take_unused(self, origin: Origin) -> _Connection | None:
        unused = self._unused.get(origin)
        if not unused:
            return None
        connection = unused.pop()
        connection.use()
        return connection

    async def _connect(self, origin: Origin) -> _Connection:
        if self._closed:
            raise HttpError("the client was closed")
        unused = self._unused.setdefault(origin, [])
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open, unused, self._max_body_bytes),
                    origin.host, origin.port, ssl=self._tls if origin.tls else None,
                )  # fmt: skip
        except OSError as error:
            reason = str(error) or "timed out"
            raise CannotConnect(f"cannot connect to {origin.host}:{origin.port}: {reason}") from error
        return connection


class _Connection(asyncio.Protocol):
    def __init__(self, opened: set[_Connection], unused: list[_Connection], max_body_bytes: int) -> None:
        """The connection is in ``opened`` until it is lost, and in ``unused`` while it waits for a request."""
        self._opened = opened
        self._unused = unused
        self._max_body_bytes = max_body_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, frame: bytes, *, without_body: bool) -> HttpResponse:
        if self._transport is None or self._transport.is_closing():
            raise HttpError("the connection was closed")
        self._parser = ResponseParser(self._max_body_bytes, without_body=without_body)
        self._answer = self._loop.create_future()
        self._transport.write(frame)
        try:
            return await self._answer
        finally:
            self._answer = self._parser = None

    def keep(self) -> None:
        """Wait for another request."""
        if self._transport is not None and not self._transport.is_closing():
            self._unused.append(self)
            self._idle = self._loop.call_later(IDLE_S, self.close)

    def use(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def close(self, error: HttpError | None = None) -> None:
        """A running request fails with the error."""
        transport = self._transport
        self._lose(error or HttpError("the connection was closed"))
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # nothing was asked
            self.close()
            return
        try:
            response = self._parser.feed(data)
        except MalformedResponse as error:
            self.close(HttpError(str(error)))
            return
        if response is not None:
            self._take(response)

    def connection_lost(self, exc: Exception | None) -> None:
        response = self._parser.feed_eof() if self._parser is not None and exc is None else None
        if response is not None:
            self._take(response)
        self._lose(HttpError(f"the connection was lost: {exc or 'closed by the server'}"))

    def _take(self, response: HttpResponse) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(response)

    def _lose(self, error: HttpError) -> None:
        """No request may use the connection any more."""
        self.use()
        self._transport = None
        self._opened.discard(self)
        if self in self._unused:
            self._unused.remove(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _encode(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Raises HttpError if the request would not be what it looks like: with spaces or line ends in wrong places."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    length = f"Content-Length: {len(body)}\r\n" if body or method not in {"GET", "HEAD"} else ""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    given = f"{host}{target}{''.join(headers.values())}"
    if " " in target or not given.isascii() or not given.isprintable():
        raise HttpError(f"no request can be made of {target[:200]!r}")
    return f"{method} {target} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n{fields}{length}\r\n".encode() + body
