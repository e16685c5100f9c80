"""A client over its quota is answered at once and then muted (KIP-219)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher
from gateway.handlers.table import APIS
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, RequestContext
from gateway.requests.policy import RepeatedCharges
from gateway.requests.reply import Response
from protocol.kafka.codec import decode_response
from protocol.kafka.messages.groups import HeartbeatResponse
from protocol.kafka.messages.records import ListOffsetsResponse
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import Conversation, frame

THROTTLE_TIME_MS = 70


class Throttling:
    """A meter whose clients are all over their quota."""

    is_needed = True

    def charge(self, call: Call, response: Response) -> tuple[Response, int]:
        return response, THROTTLE_TIME_MS

    def bound(self, call: Call) -> None:
        """No fetch is limited."""

    def repeated(self, call: Call) -> RepeatedCharges:
        raise NotImplementedError("these tests repeat nothing")


@pytest.mark.parametrize(
    ("api_key", "version", "response"),
    [(12, 4, HeartbeatResponse(error_code=0)), (2, 6, ListOffsetsResponse(topics=[]))],
    ids=["by the schema", "by hand"],
)
def test_the_answer_names_the_time(api_key: int, version: int, response: Any) -> None:
    muted: list[int] = []
    cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), fleet=SimpleNamespace(incarnation="")))
    dispatcher = Dispatcher(cluster)
    context = RequestContext(Client("c:1", mute=muted.append), Listener(""), cluster, meter=Throttling())
    api = APIS[api_key]
    call = Call(api, version, 7, None, api.request(), context)
    dispatcher.complete(call, response)
    frame = memoryview(b"".join(dispatcher.encode(call, response)))[4:]
    assert decode_response(type(response), version, frame).throttle_time_ms == THROTTLE_TIME_MS
    assert muted == [THROTTLE_TIME_MS]


async def test_a_muted_client_is_answered_but_nothing_more_of_it_is_run() -> None:
    talk = Conversation()
    assert talk.dispatcher.client is not None
    talk.feed(frame("f1"))
    talk.dispatcher.client.mute(60_000)
    talk.feed(frame("n2"))
    talk.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert talk.answers == ["1"]
    assert talk.dispatcher.begun == ["1"]
    talk.dispatcher.client.mute(1)
    await asyncio.sleep(0.01)
    assert talk.dispatcher.begun == ["1"], "the longest time counts"


async def test_a_client_that_was_muted_goes_on() -> None:
    talk = Conversation()
    assert talk.dispatcher.client is not None
    talk.dispatcher.client.mute(1)
    talk.feed(frame("n1"))
    async with asyncio.timeout(10):
        while talk.answers != ["1"]:
            await asyncio.sleep(0.001)


async def test_a_muted_client_may_leave() -> None:
    talk = Conversation()
    assert talk.dispatcher.client is not None
    talk.dispatcher.client.mute(1)
    talk.feed(frame("n1"))
    talk.lose()
    await asyncio.sleep(0.01)
    assert talk.dispatcher.begun == [] and talk.dispatcher.closed == 1
