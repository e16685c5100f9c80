"""HTTP for operators: /metrics, /healthz (whether the process works), /readyz (whether clients are served).

/readyz/partitions is for an address that leads to this gateway only. The other gateways name it as a leader when it has
joined, which is seconds before it has loaded its groups: nobody else can serve its partitions meanwhile.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest

from gateway.config.gateway_config import HttpSection
from gateway.observability.metrics import Metrics

MAX_CONNECTIONS = 100
"""A new connection beyond this number closes the oldest one, so connections that do nothing keep no probe out."""
CONNECTION_S = 30.0
"""A connection serves one request, and lives for this time at most. A metrics page is sent in milliseconds."""

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]

log = structlog.get_logger()


class _BoundedServer(web.Server):
    """An HTTP server whose connections have a bounded number and a bounded life."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, access_log=None, lingering_time=0)  # the rest of a body is not waited for
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """The oldest connection comes first."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._ends) >= MAX_CONNECTIONS:
            oldest = next(iter(self._ends))
            self._forget(oldest)
            _abort(oldest)
        self._ends[handler] = asyncio.get_running_loop().call_later(CONNECTION_S, _abort, handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def _forget(self, handler: web.RequestHandler) -> None:
        end = self._ends.pop(handler, None)
        if end is not None:
            end.cancel()


def _abort(handler: web.RequestHandler) -> None:
    """Close the connection at once, although the client may not have read its response."""
    if handler.transport is not None:
        handler.transport.abort()


class _Collected(CollectorRegistry):
    """A snapshot of the metrics."""

    def __init__(self, metrics: list[Metric]) -> None:
        super().__init__()
        self._found = metrics

    def collect(self) -> list[Metric]:
        return self._found


class HealthServer:
    def __init__(
        self,
        settings: HttpSection,
        metrics: Metrics,
        broken: Callable[[], str | None],
        ready: Callable[[], str | None],
        clusters: Callable[[], Mapping[str, str]] = dict,
        serves_partitions: Callable[[], str | None] | None = None,
    ) -> None:
        """``broken`` returns why the process has to end, ``ready`` why clients are not served, or None.

        ``serves_partitions`` returns why partitions are not served; if it is not given, ``ready`` does.
        ``clusters`` returns the reason for each other cluster that is not served. These do not change the status.
        """
        self._host = settings.host
        self._port = settings.port
        self._token_file = settings.token_file
        self._metrics = metrics
        self._broken = broken
        self._ready = ready
        self._serves_partitions = serves_partitions or ready
        self._clusters = clusters
        self._pages: dict[str, Handler] = {
            "/metrics": self._get_metrics,
            "/healthz": self._get_health,
            "/readyz": self._get_ready,
            "/readyz/partitions": self._get_serves_partitions,
        }
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Raises OSError."""
        self._runner = web.ServerRunner(_BoundedServer(self._answer))
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if page is None:
            response = web.Response(status=404)
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(status=405, headers={"Allow": "GET, HEAD"})
        else:
            response = await page(request)
        response.force_close()
        return response

    async def _get_metrics(self, request: web.BaseRequest) -> web.Response:
        if not await self._may_see_all(request):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        # Only the event loop's thread may read the metrics. The text of half a megabyte is written in another thread.
        found = _Collected(list(self._metrics.registry.collect()))
        body = await asyncio.to_thread(generate_latest, found)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_health(self, request: web.BaseRequest) -> web.Response:
        return _state(self._broken(), "ok")

    async def _get_ready(self, request: web.BaseRequest) -> web.Response:
        state = _state(self._broken() or self._ready(), "ready")
        failing = self._clusters()
        if failing and await self._may_see_all(request):
            lines = "".join(f"{cluster}: {reason}\n" for cluster, reason in sorted(failing.items()))
            state.text = f"{state.text}{lines}"
        return state

    async def _get_serves_partitions(self, request: web.BaseRequest) -> web.Response:
        return _state(self._broken() or self._serves_partitions(), "ready")

    async def _may_see_all(self, request: web.BaseRequest) -> bool:
        return self._token_file is None or await asyncio.to_thread(_has_token, request, self._token_file)


def _has_token(request: web.BaseRequest, file: Path) -> bool:
    """Always False while the file cannot be read, or is empty."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    try:
        wanted = file.read_bytes().strip()
    except OSError as error:
        log.warning("the token for metrics cannot be read", file=str(file), error=error.strerror)
        return False
    token = given.strip().encode(errors="surrogateescape")  # the bytes as they were sent: they need not be UTF-8
    return scheme.lower() == "bearer" and bool(wanted) and hmac.compare_digest(token, wanted)


def _state(reason: str | None, good: str) -> web.Response:
    return web.Response(text=f"{reason or good}\n", status=503 if reason else 200)
