"""The admin API of brokers that do not answer, or have lost their metadata session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError, AdminHttp
from gateway.pulsar.position import Position
from gateway.pulsar.settings import PulsarSettings


class Broker:
    """Answers with its name, or not at all."""

    def __init__(self, name: str, *, silent: bool) -> None:
        self.requests = 0
        self.silent = silent
        self.status = 200
        self._name = name
        self._end = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.server = TestServer(app)

    async def _handle(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.silent:
            await self._end.wait()
        answer = web.json_response(self._name if self.status == 200 else {"reason": "expired"}, status=self.status)
        answer.enable_compression()  # if the client accepts that
        return answer

    async def close(self) -> None:
        self._end.set()
        await self.server.close()


@pytest.fixture
async def brokers() -> AsyncIterator[list[Broker]]:
    both = [Broker("silent", silent=True), Broker("well", silent=False)]
    for broker in both:
        await broker.server.start_server()
    yield both
    for broker in both:
        await broker.close()


@pytest.fixture
async def http(brokers: list[Broker]) -> AsyncIterator[AdminHttp]:
    addresses = ",".join(f"{broker.server.host}:{broker.server.port}" for broker in brokers)
    settings = PulsarSettings(
        service_url="pulsar://127.0.0.1:6650", admin_url=f"http://{addresses}",
        request_timeout_ms=500, operation_timeout_ms=5_000, backoff_initial_ms=1,
    )  # fmt: skip
    http = AdminHttp(settings)
    yield http
    await http.close()


async def test_a_read_is_asked_of_the_next_broker(brokers: list[Broker], http: AdminHttp) -> None:
    assert [await http.get_json("path") for _ in range(3)] == ["well"] * 3
    assert [broker.requests for broker in brokers] == [1, 3]


async def test_answers_are_not_compressed(brokers: list[Broker], http: AdminHttp) -> None:
    brokers[0].silent = False
    assert "Content-Encoding" not in (await http.request("GET", "path")).headers


async def test_a_write_is_not_repeated(brokers: list[Broker], http: AdminHttp) -> None:
    with pytest.raises(AdminError, match="timed out"):
        await http.request("PUT", "path")
    assert [broker.requests for broker in brokers] == [1, 0]


async def test_a_read_that_one_broker_cannot_answer_goes_to_the_next(brokers: list[Broker], http: AdminHttp) -> None:
    ill, _ = brokers
    ill.silent, ill.status = False, 500
    assert [await http.get_json("path") for _ in range(3)] == ["well"] * 3
    assert [broker.requests for broker in brokers] == [1, 3]


async def test_what_no_broker_can_answer_is_told(brokers: list[Broker], http: AdminHttp) -> None:
    for broker in brokers:
        broker.silent, broker.status = False, 500
    with pytest.raises(AdminError, match="500 GET /admin/v2/path: expired"):
        await http.get_json("path")
    with pytest.raises(AdminError, match="500 PUT /admin/v2/path: expired"):
        await http.request("PUT", "path")
    assert [broker.requests for broker in brokers] == [2, 1]


async def test_a_refusal_with_status_500_is_a_response(brokers: list[Broker], http: AdminHttp) -> None:
    ill, _ = brokers
    ill.silent, ill.status = False, 500
    for _ in range(2):
        with pytest.raises(AdminError, match="500"):
            await http.request("GET", "path", refusals=("expired",))
    assert [broker.requests for broker in brokers] == [2, 0]


@pytest.mark.parametrize("in_status_line", [True, False], ids=["Pulsar 4.0", "Pulsar 4.2"])
async def test_an_entry_behind_the_last_one(*, in_status_line: bool) -> None:
    """The answer to a HEAD has no body. Where its status line has no reason, a GET finds it out."""
    reason = "Message: LastConfirmedEntry is 3:0 when reading entry 99"
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.method)
        status_line = reason if in_status_line else "Server Error"
        return web.json_response({"reason": reason}, status=500, reason=status_line)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app) as server:
        settings = PulsarSettings(
            service_url="pulsar://127.0.0.1:6650", admin_url=f"http://{server.host}:{server.port}"
        )
        admin = AdminClient(settings)
        try:
            assert await admin.topics.entry("persistent://t/ns/topic", Position(3, 99)) is None
        finally:
            await admin.close()
    assert asked == (["HEAD"] if in_status_line else ["HEAD", "GET"])


async def test_entries_that_are_never_returned_hold_up_no_other_requests() -> None:
    """A native producer may write any number of them, in any number of partitions."""
    end = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await end.wait()
        return web.Response()

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"properties": {"index": "7"}})

    app = web.Application()
    app.router.add_route("HEAD", "/{path:.*/entry/.*}", never)
    app.router.add_route("GET", "/{path:.*/internal-info}", answer)
    async with TestServer(app) as server:
        settings = PulsarSettings(
            service_url="pulsar://127.0.0.1:6650", admin_url=f"http://{server.host}:{server.port}",
            request_timeout_ms=60_000, operation_timeout_ms=60_000, max_admin_connections=4,
        )  # fmt: skip
        admin = AdminClient(settings)
        topics = [f"persistent://t/n/a-partition-{number}" for number in range(20)]
        asked = [asyncio.create_task(admin.topics.entry(topic, Position(1, 2))) for topic in topics]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            assert await admin.topics.managed_ledger_properties(topics[0]) == {"index": "7"}
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        end.set()
        await admin.close()
