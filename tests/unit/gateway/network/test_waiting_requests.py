"""What a client sends behind a request that waits: it is not received, or given up when memory is short."""

from __future__ import annotations

import pytest

from gateway.network.connection import READ_BUFFER_BYTES, SHORT_READ_BYTES
from gateway.network.request_budget import RECEIVE_S
from protocol.framing import MAX_FRAMES
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import Conversation, frame

MIB = 1024 * 1024
LARGE = frame("n2", MIB)
WAITS = ("answer", "throttle", "reader")


def blocked(conversation: Conversation, waits: str) -> None:
    if waits == "answer":
        conversation.feed(frame("a1"))
    elif waits == "throttle":
        assert conversation.dispatcher.client is not None
        conversation.dispatcher.client.mute(60_000)
    else:
        conversation.connection.pause_writing()


def feed_while_reading(conversation: Conversation, data: bytes) -> int:
    """Returns how much was received."""
    received = 0
    while data[received:] and conversation.transport.reading:
        buffer = conversation.connection.get_buffer(-1)
        part = data[received : received + len(buffer)]
        buffer[: len(part)] = part
        received += len(part)
        conversation.connection.buffer_updated(len(part))
    return received


@pytest.mark.parametrize("waits", WAITS)
async def test_a_large_request_is_not_received_while_the_one_before_it_waits(waits: str) -> None:
    conversation = Conversation()
    blocked(conversation, waits)
    received = feed_while_reading(conversation, LARGE)
    assert received <= SHORT_READ_BYTES
    if waits == "answer":
        conversation.dispatcher.futures["1"].set_result("1")
    elif waits == "throttle":
        assert conversation.dispatcher.client is not None
        conversation.connection._pipeline._unmute()
    else:
        conversation.connection.resume_writing()
    await let_callbacks_run()
    assert conversation.transport.reading
    feed_while_reading(conversation, LARGE[received:])
    assert conversation.answers[-1] == "2"
    conversation.lose()


async def test_the_next_of_many_produce_requests_is_received_while_the_first_one_waits() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1"))
    assert feed_while_reading(conversation, frame("f2", MIB)) > MIB
    conversation.lose()


@pytest.mark.parametrize("waits", WAITS)
async def test_what_waits_for_its_client_may_be_given_up_when_memory_is_short(waits: str) -> None:
    conversation = Conversation(requests_budget_bytes=MIB)
    conversation.feed(frame("n0"))
    waiting = frame("n2", READ_BUFFER_BYTES // 2)
    conversation.connection.get_buffer(-1)[: len(waiting)] = waiting
    blocked(conversation, waits)
    conversation.connection.buffer_updated(len(waiting))
    connection = conversation.connection
    assert not connection.lacks_memory
    conversation.server.requests.received(MIB)
    assert connection.lacks_memory
    assert not connection.holds_for_client(connection.last_activity + RECEIVE_S), "it has just begun to wait"
    assert connection.holds_for_client(connection.last_activity + RECEIVE_S + 1)
    connection.abort("test")
    assert conversation.transport.aborted
    conversation.lose()
    assert conversation.server.metrics.request_bytes.value == MIB


async def test_produce_requests_that_wait_for_pulsar_are_not_given_up() -> None:
    conversation = Conversation(requests_budget_bytes=MIB)
    conversation.feed(frame("f1"))
    conversation.feed(frame("n2", 1_000))
    conversation.server.requests.received(MIB)
    assert not conversation.connection.holds_for_client(conversation.connection.last_activity + RECEIVE_S + 1)
    conversation.lose()


async def test_many_small_requests_are_cut_a_bounded_number_at_a_time() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1"))
    count = READ_BUFFER_BYTES // len(frame("n0"))
    data = frame("n0") * count
    conversation.connection.get_buffer(-1)[: len(data)] = data
    conversation.connection.buffer_updated(len(data))
    assert len(conversation.connection._pipeline._backlog) == MAX_FRAMES
    assert not conversation.transport.reading and not conversation.connection.idle
    conversation.dispatcher.futures["1"].set_result("1")
    for _ in range(count // MAX_FRAMES + 5):
        await let_callbacks_run()
    assert conversation.answers == ["1", *["0"] * count]
    assert conversation.transport.reading and conversation.connection.idle
    conversation.lose()


async def test_a_malformed_request_behind_many_small_ones_ends_the_connection_in_its_turn() -> None:
    conversation = Conversation()
    data = frame("n0") * (2 * MAX_FRAMES) + b"\xff\xff\xff\xff"
    conversation.connection.get_buffer(-1)[: len(data)] = data
    conversation.connection.buffer_updated(len(data))
    for _ in range(5):
        await let_callbacks_run()
    assert conversation.answers == ["0"] * (2 * MAX_FRAMES) and conversation.transport.closing
    conversation.lose()


async def test_small_requests_that_are_not_cut_yet_are_dropped_when_the_gateway_stops() -> None:
    conversation = Conversation()
    data = frame("n0") * (2 * MAX_FRAMES)
    conversation.feed(frame("f1"))
    conversation.connection.get_buffer(-1)[: len(data)] = data
    conversation.connection.buffer_updated(len(data))
    conversation.connection.finish("shutdown")
    conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.answers == ["1"] and conversation.transport.closing
    conversation.lose()
