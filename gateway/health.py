"""HTTP for operators: /metrics, /healthz (the process works), /readyz (clients are served)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest

from gateway.observability.metrics import Metrics


class _Collected(CollectorRegistry):
    """Metrics as they were."""

    def __init__(self, metrics: list[Metric]) -> None:
        super().__init__()
        self._found = metrics

    def collect(self) -> list[Metric]:
        return self._found


class HealthServer:
    def __init__(
        self, host: str, port: int, metrics: Metrics, broken: Callable[[], str | None], ready: Callable[[], str | None]
    ) -> None:
        """``broken`` gives the reason why the process has to end, ``ready`` why clients are not served, or None."""
        self._host = host
        self._port = port
        self._metrics = metrics
        self._broken = broken
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises OSError."""
        app = web.Application()
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        app.router.add_get("/readyz", self._get_ready)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _get_metrics(self, request: web.Request) -> web.Response:
        # Only the loop may look at what is counted; writing half a megabyte of text takes long, and needs no loop.
        found = _Collected(list(self._metrics.registry.collect()))
        body = await asyncio.to_thread(generate_latest, found)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_health(self, request: web.Request) -> web.Response:
        return _state(self._broken(), "ok")

    async def _get_ready(self, request: web.Request) -> web.Response:
        return _state(self._broken() or self._ready(), "ready")


def _state(reason: str | None, good: str) -> web.Response:
    return web.Response(text=f"{reason or good}\n", status=503 if reason else 200)
