"""What operators ask for over HTTP."""

from __future__ import annotations

import threading
from typing import Any

import aiohttp
import prometheus_client
import pytest

from deploy.local.process import free_port
from gateway import health
from gateway.health import HealthServer
from gateway.observability.metrics import Metrics

HOST = "127.0.0.1"


async def test_metrics_are_written_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be half a megabyte of text."""
    threads: list[int] = []

    def generate(registry: Any) -> bytes:
        threads.append(threading.get_ident())
        return prometheus_client.generate_latest(registry)

    monkeypatch.setattr(health, "generate_latest", generate)
    metrics, port = Metrics(), free_port()
    metrics.request("Fetch", 12).answered(0.01)
    server = HealthServer(HOST, port, metrics, lambda: None, lambda: None)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}/metrics") as response:
            text = await response.text()
    finally:
        await server.stop()
    assert 'kafka_gateway_request_latency_seconds_count{api="Fetch",version="12"} 1.0' in text
    assert threads
    assert threading.get_ident() not in threads
