"""One connection: responses are sent in the order of the requests, however bytes arrive and calls complete."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.config.limits import MIB
from gateway.config.listeners import LOOPBACK
from gateway.network.connection import READ_BUFFER_BYTES, KafkaConnection, Owner
from gateway.requests.context import Listener
from gateway.requests.reply import Response
from protocol.framing import DIRECT_READ_BYTES
from protocol.proxy.header import Endpoint, encode_gateway_header
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import LISTENER, Conversation, FakeTransport, frame


async def test_frames_may_be_cut_anywhere() -> None:
    stream = frame("n1") + frame("n2", 300) + frame("n3") + frame("n4", 5)
    for first in range(len(stream) + 1):
        for second in (first, min(first + 3, len(stream)), len(stream)):
            conversation = Conversation()
            for part in (stream[:first], stream[first:second], stream[second:]):
                conversation.feed(part)
            assert conversation.answers == ["1", "2", "3", "4"]


PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n"


async def test_frames_behind_a_proxy_header() -> None:
    stream = PROXY_LINE + frame("n1") + frame("n2", 300)
    for cut in range(len(stream) + 1):
        conversation = Conversation(proxies=LOOPBACK)
        for part in (stream[:cut], stream[cut:]):
            conversation.feed(part)
        assert conversation.answers == ["1", "2"]
        assert conversation.dispatcher.client is not None
        assert conversation.dispatcher.client.address == "192.0.2.7:51000"


async def test_an_untrusted_proxy_is_not_listened_to() -> None:
    conversation = Conversation(proxies=(IPv4Network("10.0.0.0/8"),))
    assert conversation.transport.closing
    conversation.connection.get_buffer(-1)[:4] = b"PROX"
    conversation.connection.buffer_updated(4)
    assert conversation.dispatcher.begun == []


async def test_a_reset_connection_is_not_reported_as_one_of_an_untrusted_proxy() -> None:
    """The system does not know any more where it came from."""
    conversation = Conversation()
    connection = KafkaConnection(cast(Owner, conversation.server), LISTENER, proxies=LOOPBACK)
    transport = FakeTransport(peer=None)
    connection.connection_made(transport)
    closed = conversation.server.metrics.connections_closed
    reasons = ("not a trusted proxy", "reset before it was accepted")
    assert transport.closing and [closed.labels(each)._value.get() for each in reasons] == [0, 1]


@pytest.mark.parametrize("data", [frame("n1"), b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 nobody\r\n" + frame("n1")])
async def test_no_proxy_header_ends_the_connection(data: bytes) -> None:
    conversation = Conversation(proxies=LOOPBACK)
    conversation.feed(data)
    assert conversation.transport.closing
    assert conversation.answers == []


async def test_byte_by_byte() -> None:
    conversation = Conversation()
    for byte in frame("n1", 40) + frame("n2"):
        conversation.feed(bytes([byte]))
    assert conversation.answers == ["1", "2"]


@pytest.mark.parametrize(
    "size",
    [DIRECT_READ_BYTES, DIRECT_READ_BYTES + 1, READ_BUFFER_BYTES - 4, READ_BUFFER_BYTES, 3 * READ_BUFFER_BYTES + 7],
)
@pytest.mark.parametrize("first", [1, 4, 5, 1_000, DIRECT_READ_BYTES, READ_BUFFER_BYTES])
async def test_large_frames(size: int, first: int) -> None:
    conversation = Conversation()
    stream = frame("n1", size) + frame("n2") + frame("n3", size)
    conversation.feed(stream[:first])
    conversation.feed(stream[first:])
    assert conversation.answers == ["1", "2", "3"]


@settings(max_examples=100, deadline=None)
@given(kinds=st.text("nfsp0", min_size=1, max_size=12), cuts=st.lists(st.integers(1, 30)), seed=st.integers(0, 1_000))
def test_answers_leave_in_order_whatever_completes_first(kinds: str, cuts: list[int], seed: int) -> None:
    async def run() -> None:
        conversation = Conversation()
        stream = b"".join(frame(f"{kind}{number}") for number, kind in enumerate(kinds))
        for cut in cuts:
            conversation.feed(stream[:cut])
            stream = stream[cut:]
        conversation.feed(stream)
        expected = [str(number) for number, kind in enumerate(kinds) if kind != "0"]
        choose = random.Random(seed)
        dispatcher = conversation.dispatcher
        for _ in range(3 * len(kinds)):
            await let_callbacks_run()
            pending = [
                (number, future)
                for futures in (dispatcher.futures, dispatcher.serial)
                for number, future in futures.items()
                if not future.done()
            ]
            if pending:
                number, future = choose.choice(pending)
                future.set_result(number)
            assert conversation.answers == expected[: len(conversation.answers)]
            assert dispatcher.begun == [str(number) for number in range(len(dispatcher.begun))]
            last_now = max((number for number in map(int, dispatcher.begun) if kinds[number] == "n"), default=-1)
            assert all(int(number) > last_now for number, future in pending if not future.done())
        await let_callbacks_run()
        assert conversation.answers == expected
        assert conversation.transport.reading
        assert conversation.connection.idle

    asyncio.run(run())


async def test_the_only_answer_is_written_in_the_turn_in_which_it_comes() -> None:
    talk = Conversation()
    talk.feed(frame("f1"))
    talk.dispatcher.futures["1"].set_result(cast(Response, "1"))
    await asyncio.sleep(0)
    assert talk.answers == ["1"]


async def test_the_answers_of_a_turn_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, writes = Conversation(), list[int]()
    monkeypatch.setattr(talk.transport, "writelines", lambda buffers: writes.append(len(buffers)))
    talk.feed(b"".join(frame(f"f{number}") for number in range(5)))
    for number in range(5):
        talk.dispatcher.futures[str(number)].set_result(cast(Response, str(number)))
    await let_callbacks_run()
    assert writes == [5]


async def test_the_request_behind_an_answer_runs_in_the_next_turn() -> None:
    """Not before the other answers of the turn are known."""
    talk = Conversation()
    talk.feed(frame("f1") + frame("n2"))
    talk.dispatcher.futures["1"].set_result(cast(Response, "1"))
    await asyncio.sleep(0)
    assert talk.dispatcher.begun == ["1"]
    await asyncio.sleep(0)
    assert talk.dispatcher.begun == ["1", "2"] and talk.answers == ["1", "2"]


async def test_a_peer_gets_its_answers_as_they_come() -> None:
    conversation = Conversation(answers_in_order=False)
    conversation.feed(frame("f1") + frame("n2") + frame("f3") + frame("f4"))
    assert conversation.answers == ["2"]
    for number in ("3", "1"):
        conversation.dispatcher.futures[number].set_result(number)
        await let_callbacks_run()
    assert conversation.answers == ["2", "3", "1"]
    assert not conversation.connection.idle
    conversation.dispatcher.futures["4"].set_result("4")
    await let_callbacks_run()
    assert conversation.connection.idle


async def test_a_serial_call_holds_back_the_requests_behind_it_and_its_socket() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1") + frame("s2") + frame("f3") + frame("n4"))
    await let_callbacks_run()
    assert conversation.dispatcher.begun == ["1", "2"]
    assert not conversation.transport.reading
    conversation.dispatcher.serial["2"].set_result(None)
    await let_callbacks_run()
    assert conversation.dispatcher.begun == ["1", "2", "3"]
    assert conversation.answers == []
    for number in ("3", "1"):
        conversation.dispatcher.futures[number].set_result(number)
    await let_callbacks_run()
    assert conversation.answers == ["1", "2", "3", "4"]
    assert conversation.transport.reading


async def test_what_is_not_pipelined_is_run_when_all_before_is_answered() -> None:
    """Otherwise its response could be older than an earlier one."""
    conversation = Conversation()
    conversation.feed(frame("f1") + frame("f2") + frame("n3") + frame("f4"))
    for number in ("1", "2"):
        assert conversation.dispatcher.begun == ["1", "2"]
        assert not conversation.transport.reading
        conversation.dispatcher.futures[number].set_result(number)
        await let_callbacks_run()
    assert conversation.dispatcher.begun == ["1", "2", "3", "4"]
    assert conversation.answers == ["1", "2", "3"]
    assert conversation.transport.reading


async def test_a_client_that_does_not_read_is_not_served() -> None:
    conversation = Conversation()
    conversation.connection.pause_writing()
    assert conversation.server.unread.size_bytes == 1_000
    conversation.feed(frame("n1") + frame("n2"))
    assert conversation.dispatcher.begun == []
    assert not conversation.transport.reading
    conversation.connection.resume_writing()
    assert conversation.answers == ["1", "2"]
    assert conversation.transport.reading
    assert conversation.server.unread.size_bytes == 0


async def test_what_a_lost_client_did_not_read_is_no_longer_counted() -> None:
    conversation = Conversation()
    conversation.connection.pause_writing()
    conversation.lose()
    assert conversation.server.unread.size_bytes == 0


async def test_only_so_many_requests_are_in_flight() -> None:
    conversation = Conversation(max_in_flight_requests=2)
    conversation.feed(b"".join(frame(f"f{number}") for number in range(4)))
    assert conversation.dispatcher.begun == ["0", "1"]
    assert not conversation.transport.reading
    conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.dispatcher.begun == ["0", "1"]
    conversation.dispatcher.futures["0"].set_result("0")
    await let_callbacks_run()
    assert conversation.answers == ["0", "1"]
    assert conversation.dispatcher.begun == ["0", "1", "2", "3"]
    assert conversation.transport.reading


async def test_the_largest_frame_is_taken() -> None:
    conversation = Conversation(max_request_bytes=MIB, max_message_bytes=MIB)
    conversation.feed(frame("n1", MIB))
    assert conversation.answers == ["1"]


async def test_too_many_connections() -> None:
    conversation = Conversation(max_connections=1)
    connection, transport = conversation.connect()
    assert transport.closing
    assert not conversation.transport.closing
    connection.connection_lost(None)
    conversation.lose()
    _, transport = conversation.connect()
    assert not transport.closing


async def until_answered(conversation: Conversation, *answers: str) -> None:
    async with asyncio.timeout(10):
        while conversation.answers != [*answers]:
            await asyncio.sleep(0.001)


async def test_large_requests_and_answers_keep_their_place() -> None:
    conversation = Conversation()
    conversation.feed(frame("n1") + frame("n2L") + frame("n3") + frame("n4E") + frame("n5LE") + frame("n6"))
    assert conversation.answers == ["1"]
    await until_answered(conversation, "1", "2L", "3", "4E", "5LE", "6")
    assert conversation.server.metrics.request_bytes.value == 0


async def test_a_large_request_that_is_malformed_ends_the_connection_in_its_turn() -> None:
    conversation = Conversation()
    conversation.feed(frame("n1") + frame("mL") + frame("n2"))
    async with asyncio.timeout(10):
        while not conversation.transport.closing:
            await asyncio.sleep(0.001)
    assert conversation.answers == ["1"]


async def test_an_answer_that_cannot_be_encoded_ends_the_connection() -> None:
    conversation = Conversation()
    conversation.feed(frame("nbadE"))
    async with asyncio.timeout(10):
        while not conversation.transport.closing:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("request_", ["n1L", "n1E"])
async def test_a_client_that_leaves_gives_back_its_memory(request_: str) -> None:
    conversation = Conversation()
    requests = conversation.server.requests
    conversation.feed(frame(request_) + frame("n2"))
    await asyncio.sleep(0)
    conversation.connection.connection_lost(None)
    while threading.active_count() > 1 and not requests.decoding.is_empty:
        await asyncio.sleep(0.001)
    assert conversation.server.metrics.request_bytes.value == 0
    assert requests.decoding.is_empty


async def test_nobody_reads_above_the_budget_until_answers_are_given() -> None:
    conversation = Conversation(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    other, transport = conversation.connect()
    _, unread = conversation.connect()
    other.get_buffer(-1)[:3] = b"\0\0\0"
    other.buffer_updated(3)
    conversation.feed(frame("f1", MIB - 4))
    assert transport.reading, "one client may send the rest of its request"
    assert not unread.reading
    conversation.dispatcher.futures["1"].set_result("1")
    await until_answered(conversation, "1")
    assert unread.reading and transport.reading


async def test_other_gateways_are_read_while_clients_use_all_memory() -> None:
    """The requests of the clients may wait for the other gateway, whose clients' requests wait for this one."""
    conversation = Conversation(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    conversation.feed(frame("f1", MIB - 4))
    peers = Listener(FORWARDING_LISTENER)
    link, transport = conversation.connect(peers, answers_in_order=False)
    await let_callbacks_run()
    assert transport.reading
    conversation.feed(frame("n2"), link)
    assert transport.written == b"2;"
    conversation.feed(frame("f3", MIB - 4), link)
    _, other = conversation.connect(peers, answers_in_order=False)
    await let_callbacks_run()
    assert not other.reading, "their requests are bounded, too"


@pytest.mark.parametrize("is_exhausted_before", [False, True])
async def test_questions_of_other_gateways_are_read_while_forwarded_requests_use_all_memory(
    is_exhausted_before: bool,
) -> None:
    """The forwarded requests may wait for the other gateway to verify a transaction, and its requests for this one."""
    conversation = Conversation(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    peers = Listener(FORWARDING_LISTENER)
    forwarded, _ = conversation.connect(peers, answers_in_order=False)
    if is_exhausted_before:
        conversation.feed(frame("f1", MIB - 4), forwarded)
    link, transport = conversation.connect(peers, answers_in_order=False, proxies=LOOPBACK)
    await let_callbacks_run()
    assert transport.reading
    conversation.feed(encode_gateway_header(Endpoint("10.0.0.1", 1), is_own=True), link)
    if not is_exhausted_before:
        conversation.feed(frame("f1", MIB - 4), forwarded)
    await let_callbacks_run()
    assert transport.reading
    conversation.feed(frame("n2"), link)
    assert transport.written == b"2;"
    conversation.feed(frame("f3", MIB - 4), link)
    await let_callbacks_run()
    assert not transport.reading, "their requests are bounded, too"


@pytest.mark.parametrize(("bad", "reason"), [("m", "malformed request"), ("u", "unsupported request")])
async def test_what_is_not_served_is_not_called_malformed(bad: str, reason: str) -> None:
    conversation = Conversation()
    conversation.feed(frame(bad))
    await let_callbacks_run()
    closed = conversation.server.metrics.registry.get_sample_value
    assert closed("kafka_gateway_connections_closed_total", {"reason": reason}) == 1


async def test_a_decoded_request_holds_what_it_takes() -> None:
    """Group members with long subscriptions wait for each other: all of them must be decoded."""
    conversation = Conversation(requests_budget_bytes=MIB)
    requests, size = conversation.server.requests, 100_000
    clients = [conversation, *(Conversation() for _ in range(3))]
    for client in clients:
        client.server = conversation.server
        client.connection, client.transport = client.connect()
        client.feed(frame("f1".ljust(size - 1) + "L"))
        async with asyncio.timeout(10):
            while not conversation.dispatcher.futures.pop("1".ljust(size - 2) + "L", None):
                await asyncio.sleep(0.001)
    assert requests.decoding.held_bytes == len(clients) * requests.decoding.decoded_bytes(size, 0)
    for client in clients:
        client.lose()
    assert requests.decoding.is_empty


async def test_names_of_hosts_do_not_wait_for_large_requests_nor_these_for_them() -> None:
    looked_up, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    lookup = loop.run_in_executor(None, looked_up.wait)
    try:
        conversation = Conversation()
        conversation.feed(frame("n1L") + frame("n2E"))
        await until_answered(conversation, "1L", "2E")
    finally:
        looked_up.set()
        await lookup
