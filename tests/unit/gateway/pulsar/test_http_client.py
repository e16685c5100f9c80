"""The HTTP client of the admin API, and servers that lose, delay or spoil answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.pulsar import http_client
from gateway.pulsar.http_client import CannotConnect, HttpClient, HttpError, Origin
from protocol.http.response import HttpResponse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSE = b""


class Server:
    """Answers each request with the next of its answers; the last one is repeated."""

    def __init__(self) -> None:
        self.answers = [OK]
        self.requests: list[bytes] = []
        self.connections = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.origin = Origin("127.0.0.1", self._server.sockets[0].getsockname()[1], tls=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        while True:
            try:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            await self.may_answer.wait()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer == CLOSE:
                break
            writer.write(answer)
        writer.close()

    async def close(self) -> None:
        self.may_answer.set()
        for writer in self._writers:
            writer.close()
        self._server.close()
        await self._server.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(max_requests=2, connect_timeout_s=5, max_body_bytes=1_000, tls=True)
    yield client
    await client.close()


async def get(client: HttpClient, server: Server, target: str = "/a", timeout_s: float = 10) -> HttpResponse:
    return await client.request(server.origin, "GET", target, {"Accept": "x"}, b"", timeout_s)


async def test_a_request_and_its_answer(server: Server, client: HttpClient) -> None:
    assert (await get(client, server, "/a%20b?c=d")).body == b"ok"
    host = f"127.0.0.1:{server.origin.port}"
    assert server.requests == [f"GET /a%20b?c=d HTTP/1.1\r\nHost: {host}\r\nAccept: x\r\n\r\n".encode()]


async def test_a_connection_is_used_again(server: Server, client: HttpClient) -> None:
    for _ in range(3):
        await get(client, server)
    assert (len(server.requests), server.connections) == (3, 1)


async def test_as_many_requests_at_a_time_as_are_allowed(server: Server, client: HttpClient) -> None:
    server.may_answer.clear()
    tasks = [asyncio.create_task(get(client, server)) for _ in range(5)]
    while len(server.requests) < 2:
        await asyncio.sleep(0.001)
    assert len(server.requests) == 2
    server.may_answer.set()
    assert [response.body for response in await asyncio.gather(*tasks)] == [b"ok"] * 5
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer", [CLOSE, b"garbage\r\n\r\n", OK + b"more", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
async def test_a_connection_that_failed_is_not_used_again(server: Server, client: HttpClient, answer: bytes) -> None:
    server.answers = [answer, OK]
    with pytest.raises(HttpError):
        await get(client, server)
    assert (await get(client, server)).body == b"ok"
    assert server.connections == 2


async def test_a_connection_that_the_server_closes_is_not_used_again(server: Server, client: HttpClient) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK]
    assert [(await get(client, server)).body for _ in range(2)] == [b"ok"] * 2
    assert server.connections == 2


async def test_an_unused_connection_is_closed_after_a_while(
    server: Server, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "IDLE_S", 0.001)
    await get(client, server)
    while client._open:
        await asyncio.sleep(0.001)
    assert (await get(client, server)).body == b"ok"
    assert server.connections == 2


async def test_an_answer_that_is_late_is_not_taken_for_the_next_one(server: Server, client: HttpClient) -> None:
    server.may_answer.clear()
    with pytest.raises(TimeoutError):
        await get(client, server, timeout_s=0.05)
    server.may_answer.set()
    server.answers = [OK.replace(b"ok", b"it")]
    assert (await get(client, server)).body == b"it"
    assert server.connections == 2


async def test_the_places_of_cancelled_requests_are_free_again(server: Server, client: HttpClient) -> None:
    server.may_answer.clear()
    tasks = [asyncio.create_task(get(client, server)) for _ in range(5)]
    while len(server.requests) < 2:
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.may_answer.set()
    assert [(await get(client, server)).body for _ in range(3)] == [b"ok"] * 3


async def test_no_server(client: HttpClient, server: Server) -> None:
    await server.close()
    with pytest.raises(CannotConnect):
        await get(client, server)


async def test_closing_ends_running_requests(server: Server, client: HttpClient) -> None:
    server.may_answer.clear()
    task = asyncio.create_task(get(client, server))
    while not server.requests:
        await asyncio.sleep(0.001)
    await client.close()
    with pytest.raises(HttpError):
        await task
    with pytest.raises(HttpError, match="closed"):
        await get(client, server)


@pytest.mark.parametrize("of", [lambda text: (text, "x"), lambda text: ("/a", text)], ids=["target", "header"])
@pytest.mark.parametrize("text", ["/a\r\nX: y", "/ä", "/a\n"])
async def test_a_request_cannot_be_split_by_its_parts(
    server: Server, client: HttpClient, of: Callable[[str], tuple[str, str]], text: str
) -> None:
    target, value = of(text)
    with pytest.raises(HttpError, match="no request"):
        await client.request(server.origin, "GET", target, {"Accept": value}, b"", 1)
    assert not server.requests
