"""The HTTP endpoints for operators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import prometheus_client
import pytest

from deploy.local.process import free_port
from gateway import health
from gateway.config.gateway_config import HttpSection
from gateway.health import HealthServer
from gateway.observability.metrics import Metrics

HOST = "127.0.0.1"


async def test_metrics_are_written_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text may have half a megabyte."""
    threads: list[int] = []

    def generate(registry: Any) -> bytes:
        threads.append(threading.get_ident())
        return prometheus_client.generate_latest(registry)

    monkeypatch.setattr(health, "generate_latest", generate)
    metrics, port = Metrics(), free_port()
    metrics.request("Fetch", 12).answered(0.01)
    server = HealthServer(HttpSection(host=HOST, port=port), metrics, lambda: None, lambda: None)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}/metrics") as response:
            text = await response.text()
    finally:
        await server.stop()
    assert 'kafka_gateway_request_latency_seconds_count{api="Fetch",version="12"} 1.0' in text
    assert threads
    assert threading.get_ident() not in threads


async def test_the_rest_of_a_body_is_not_waited_for() -> None:
    """A gateway that stops would wait for it, too."""
    port = free_port()
    server = HealthServer(HttpSection(host=HOST, port=port), Metrics(), lambda: None, lambda: None)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
        answer = await asyncio.wait_for(reader.read(), health.CONNECTION_S / 5)
        assert answer.startswith(b"HTTP/1.1 405 ")
        writer.close()
    finally:
        await server.stop()


async def test_metrics_want_a_token_and_probes_do_not(tmp_path: Path) -> None:
    file, port = tmp_path / "token", free_port()
    settings = HttpSection(host=HOST, port=port, token_file=file)
    server = HealthServer(settings, Metrics(), lambda: None, lambda: None)
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://{HOST}:{port}") as session:

            async def status(path: str, authorization: str | None) -> int:
                headers = {} if authorization is None else {"Authorization": authorization}
                async with session.get(path, headers=headers) as response:
                    return response.status

            assert await status("/metrics", "Bearer ") == 401, "there is no file"
            file.write_text("")
            assert await status("/metrics", "Bearer ") == 401, "it is empty"
            file.write_text("secret\n")
            for wrong in (None, "", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer sécret"):
                assert await status("/metrics", wrong) == 401
            assert await status("/metrics", "Bearer secret") == 200
            assert await status("/metrics", "bearer secret") == 200
            assert [await status(path, None) for path in ("/healthz", "/readyz")] == [200, 200]
    finally:
        await server.stop()


async def test_a_token_that_is_not_text_is_wrong(tmp_path: Path) -> None:
    file, port = tmp_path / "token", free_port()
    file.write_text("secret")
    settings = HttpSection(host=HOST, port=port, token_file=file)
    server = HealthServer(settings, Metrics(), lambda: None, lambda: None)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.close()
    finally:
        await server.stop()


async def test_other_clusters_are_named_and_end_nothing(tmp_path: Path) -> None:
    """They are shown only to clients with the token. A tenant that deletes its namespace does not affect readiness."""
    file, failing = tmp_path / "token", {"acme/orders": "no namespace", "acme/bills": "no bookies"}
    file.write_text("secret")
    for token_file in (None, file):
        port = free_port()
        settings = HttpSection(host=HOST, port=port, token_file=token_file)
        server = HealthServer(settings, Metrics(), lambda: None, lambda: None, lambda: failing)
        await server.start()
        try:
            async with aiohttp.ClientSession(f"http://{HOST}:{port}") as session:
                for headers in ({}, {"Authorization": "Bearer secret"}):
                    async with session.get("/readyz", headers=headers) as response:
                        assert response.status == 200
                        sees = bool(headers) or token_file is None
                        named = "acme/bills: no bookies\nacme/orders: no namespace\n"
                        assert await response.text() == "ready\n" + (named if sees else "")
        finally:
            await server.stop()


async def test_partitions_are_served_before_everything_is() -> None:
    port = free_port()
    reasons: dict[str, str | None] = {"broken": None, "ready": "loading consumer groups", "partitions": None}
    server = HealthServer(
        HttpSection(host=HOST, port=port), Metrics(), lambda: reasons["broken"], lambda: reasons["ready"],
        serves_partitions=lambda: reasons["partitions"],
    )  # fmt: skip
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://{HOST}:{port}") as session:

            async def answers() -> list[tuple[int, str]]:
                found = []
                for path in ("/readyz", "/readyz/partitions"):
                    async with session.get(path) as response:
                        found.append((response.status, await response.text()))
                return found

            assert await answers() == [(503, "loading consumer groups\n"), (200, "ready\n")]
            reasons["partitions"] = "cut off"
            assert await answers() == [(503, "loading consumer groups\n"), (503, "cut off\n")]
            reasons |= {"ready": None, "partitions": None, "broken": "a task keeps failing"}
            assert await answers() == [(503, "a task keeps failing\n")] * 2
    finally:
        await server.stop()


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server that is ready."""
    port = free_port()
    server = HealthServer(HttpSection(host=HOST, port=port), Metrics(), lambda: None, lambda: None)
    await server.start()
    try:
        yield port
    finally:
        await server.stop()


async def first_line(port: int, request: str = "GET /healthz") -> bytes:
    """Of the answer, after which the server closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"{request} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


async def test_pages_and_methods() -> None:
    async with served() as port, asyncio.timeout(20):
        assert await first_line(port, "GET /metrics") == b"HTTP/1.1 200 OK"
        assert await first_line(port, "HEAD /healthz") == b"HTTP/1.1 200 OK"
        assert await first_line(port, "GET /") == b"HTTP/1.1 404 Not Found"
        assert await first_line(port, "POST /healthz") == b"HTTP/1.1 405 Method Not Allowed"


async def test_connections_that_do_nothing_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest ones stay open."""
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 3)
    async with served() as port, asyncio.timeout(20):
        idle = [await asyncio.open_connection(HOST, port) for _ in range(10)]
        assert await first_line(port) == b"HTTP/1.1 200 OK"
        for reader, _ in idle[:8]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert not any(reader.at_eof() or reader.exception() for reader, _ in idle[-2:])
        for _, writer in idle:
            writer.close()


async def test_a_connection_that_does_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the first bytes of a request."""
    monkeypatch.setattr(health, "CONNECTION_S", 0.01)
    async with served() as port, asyncio.timeout(20):
        for sent in (b"", b"GET /metr"):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(sent)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
