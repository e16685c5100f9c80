"""Everything that ends a connection, and its requests and responses then."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from gateway.config.limits import MIB
from gateway.requests.call import ClosesConnection
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.login.login_scene import Scene
from tests.unit.gateway.network.connection_harness import Conversation, frame


@pytest.mark.parametrize("length", [0, -1, -(2**31), MIB + 1, 2**31 - 1])
async def test_a_bad_length_ends_the_connection_behind_good_requests(length: int) -> None:
    conversation = Conversation(max_request_bytes=MIB, max_message_bytes=MIB)
    conversation.feed(frame("f1") + length.to_bytes(4, "big", signed=True) + b"more")
    assert not conversation.transport.closing
    assert not conversation.transport.reading
    conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.answers == ["1"]
    assert conversation.transport.closing


@pytest.mark.parametrize("bad", ["m", "c", "d"])
async def test_nothing_behind_a_bad_request_is_run(bad: str) -> None:
    conversation = Conversation()
    conversation.feed(frame("n1") + frame(f"{bad}2") + frame("n3"))
    assert conversation.answers == ["1"]
    assert conversation.transport.closing
    assert "3" not in conversation.dispatcher.begun


@pytest.mark.parametrize("kind", ["f", "s", "p"])
async def test_a_call_that_fails_later_closes_the_connection(kind: str) -> None:
    conversation = Conversation()
    conversation.feed(frame(f"{kind}1") + frame("n2"))
    await let_callbacks_run()
    futures = conversation.dispatcher.futures if kind == "f" else conversation.dispatcher.serial
    futures["1"].set_exception(RuntimeError("defect"))
    await let_callbacks_run()
    assert conversation.transport.closing
    assert conversation.answers == []


@pytest.mark.parametrize("waits", [False, True])
async def test_a_fast_path_that_fails_closes_the_connection(waits: bool) -> None:
    """Also if its request had to wait. Otherwise, the client would wait for an answer that never comes."""
    conversation = Conversation()

    def handle_known(text: bytearray, *_: object) -> bool:
        if text.startswith(b"n2"):
            raise RuntimeError("defect")
        return False

    conversation.connection._pipeline._handler.handle_known = handle_known  # type: ignore[method-assign,assignment]
    conversation.feed(frame("s1" if waits else "n1") + frame("n2") + frame("n3"))
    await let_callbacks_run()
    if waits:
        assert not conversation.transport.closing
        conversation.dispatcher.serial["1"].set_result(None)
        await let_callbacks_run()
    assert conversation.answers == ["1"]
    assert conversation.transport.closing
    assert conversation.dispatcher.begun == ["1"]


@pytest.mark.parametrize("kind", ["f", "s"])
async def test_a_call_that_is_cancelled_elsewhere_closes_the_connection(kind: str) -> None:
    conversation = Conversation()
    conversation.feed(frame(f"{kind}1") + frame("n2"))
    await let_callbacks_run()
    futures = conversation.dispatcher.futures if kind == "f" else conversation.dispatcher.serial
    futures["1"].cancel()
    await let_callbacks_run()
    assert conversation.transport.closing


async def test_a_lost_connection_cancels_what_it_waits_for() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1") + frame("s2") + frame("n3"))
    await let_callbacks_run()
    conversation.lose()
    await let_callbacks_run()
    assert conversation.dispatcher.futures["1"].cancelled()
    assert conversation.dispatcher.serial["2"].cancelled()
    assert conversation.dispatcher.begun == ["1", "2"]
    assert conversation.connection not in conversation.server.connections


async def test_unanswered_requests_of_a_lost_connection_are_charged() -> None:
    conversation = Conversation()
    conversation.feed(frame("n1") + frame("f2") + frame("f3") + frame("p4") + frame("n5"))
    await let_callbacks_run()
    conversation.dispatcher.futures["3"].set_result("3")
    await let_callbacks_run()
    conversation.lose()
    await let_callbacks_run()
    assert conversation.dispatcher.unanswered == ["2", "4"], "the first and third were charged with their answers"


async def test_a_request_whose_answer_is_being_encoded_is_not_charged_again() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1"))
    conversation.dispatcher.futures["1"].set_result("longE")
    await asyncio.sleep(0)
    conversation.lose()
    await let_callbacks_run()
    assert conversation.dispatcher.unanswered == []


async def test_answers_that_come_while_closing_harm_nothing() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1") + frame("s2"))
    await let_callbacks_run()
    conversation.connection.close("test")
    conversation.dispatcher.serial["2"].set_result(None)
    await let_callbacks_run()
    conversation.lose()
    with contextlib.suppress(asyncio.InvalidStateError):
        conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.answers == []


async def test_half_closed_clients_get_their_answers() -> None:
    conversation = Conversation()
    conversation.feed(frame("s1") + frame("01") + frame("n2"))
    await let_callbacks_run()
    assert conversation.connection.eof_received()
    conversation.dispatcher.serial["1"].set_result(None)
    await let_callbacks_run()
    assert conversation.answers == ["1", "2"]
    assert conversation.transport.closing


async def test_why_a_login_ends_the_connection_of_a_client_that_sends_no_more() -> None:
    conversation = Conversation()
    connection, _ = conversation.connect(logins=Scene().logins)
    conversation.feed(frame("\0\3 before the login"), connection)
    assert connection.eof_received()
    await let_callbacks_run()
    closed = conversation.server.metrics.connections_closed
    assert closed.labels("request before login")._value.get() == 1
    assert closed.labels("end of stream")._value.get() == 0
    connection.connection_lost(None)


async def test_an_idle_client_that_ends_is_closed() -> None:
    conversation = Conversation()
    conversation.feed(frame("n1"))
    assert not conversation.connection.eof_received()


async def test_closing_twice_aborts() -> None:
    """A client that does not read its last responses would keep them in memory."""
    conversation = Conversation()
    conversation.connection.close("idle")
    assert not conversation.transport.aborted
    conversation.connection.close("idle")
    assert conversation.transport.aborted


async def test_what_a_handler_still_waits_for_goes_with_its_client() -> None:
    """Neither its response nor its error is needed."""
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    for refused in (False, True):
        conversation = Conversation()
        conversation.feed(frame("p1"))
        await asyncio.sleep(0)
        conversation.dispatcher.serial["1"].set_result(None)
        await asyncio.sleep(0)  # the handler has returned, and its connection has not noticed yet
        future = conversation.dispatcher.futures["1"]
        if refused:
            future.set_exception(ClosesConnection("refused"))
        conversation.connection.connection_lost(None)
        await let_callbacks_run()
        assert future.cancelled() is not refused
        del future, conversation
        gc.collect()
    conversation = Conversation()
    conversation.feed(frame("f1"))
    conversation.dispatcher.futures["1"].set_exception(ClosesConnection("refused"))
    conversation.connection.connection_lost(None)  # before it gets that response
    await let_callbacks_run()
    del conversation
    gc.collect()
    assert unheard == []


async def test_a_lost_connection_is_freed_at_once() -> None:
    """Not when garbage is collected, which is rare: there may be thousands of connections."""
    conversation = Conversation()
    conversation.feed(frame("n1") + frame("f2") + frame("s3"))
    await let_callbacks_run()
    lost = [weakref.ref(each) for each in (conversation.connection, conversation.connection._pipeline)]
    gc.disable()
    try:
        conversation.lose()
        await let_callbacks_run()
        del conversation
        assert [each() for each in lost] == [None, None]
    finally:
        gc.enable()
