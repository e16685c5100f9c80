"""Which client is charged, and how the response changes."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import KafkaError
from gateway.fan_out import fan_out
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import FetchedPartition, FetchSession, FetchSessions, record_if_changed
from gateway.handlers.table import APIS
from gateway.metering.meter import Meter
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, Principal, RequestContext
from gateway.requests.reply import Reply
from gateway.security.quotas import Quotas
from gateway.security.records import QuotaKey, quota_record
from gateway.security.state import SecurityState
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.messages.records import FetchRequest, ProduceRequest, ProduceResponse
from protocol.kafka.messages.topics import CreateTopicsRequest, CreateTopicsResponse

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19


class Scene:
    def __init__(self, quota: str, bound: float) -> None:
        self.now_ms = 0.0
        state = SecurityState()
        state.apply(quota_record(QuotaKey(frozenset({("user", "ann")}), quota), bound))
        self.meter = Meter(Quotas(state), lambda: self.now_ms / 1_000)
        self.handled: list[Any] = []
        self.sessions = FetchSessions(1)
        self.cluster = cast(Cluster, SimpleNamespace(topics=None, fetch_sessions=self.sessions))

    def call(self, key: int, version: int, request: Any, *, user: str = "ann", size_bytes: int = 100) -> Call[Any]:
        context = RequestContext(Client("h:1"), Listener(""), self.cluster, Principal(name=user))
        return Call(APIS[key], version, 1, "c", request, context, bytearray(size_bytes))

    def handle(self, call: Call[Any], response: Any) -> Any:
        def handled(passed: Call[Any]) -> Reply:
            self.handled.append(passed.request)
            return Reply(response)

        return self.meter.handle(call, handled).response


def fetched(size_bytes: int) -> FetchAnswer:
    records = RecordChunks((b"x" * size_bytes,), size_bytes)
    row = PartitionAnswer(FetchedPartition("t", 0, 0, 100, -1, -1), records=records)
    return FetchAnswer(session_id=7, responses=group_by_topic([row], by_id=False))


def test_bytes_of_produce_are_those_of_the_request() -> None:
    scene = Scene("producer_byte_rate", 10)
    request, response = ProduceRequest(acks=-1), ProduceResponse()
    assert scene.meter.charge(scene.call(PRODUCE, 9, request, size_bytes=100), response) == (response, 0)
    assert scene.meter.charge(scene.call(PRODUCE, 9, request, size_bytes=100), response) == (response, 10_000)
    assert scene.meter.charge(scene.call(PRODUCE, 9, request, user="bob"), response) == (response, 0)


def test_without_acks_only_bytes_count() -> None:
    scene = Scene("request_percentage", 1)
    for acks, throttle_time_ms in ((0, 0), (-1, 0), (-1, 1_000)):
        call = scene.call(PRODUCE, 9, ProduceRequest(acks=acks))
        call.busy_s = 0.1
        assert scene.meter.charge(call, None) == (None, throttle_time_ms)


async def test_the_work_of_preparations_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that of their parts, which run in tasks of their own. The time that they wait is free."""
    scene, clock_s = Scene("request_percentage", 1), [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock_s[0])

    def work() -> None:
        clock_s[0] += 1

    async def part(_: int) -> None:
        work()
        await asyncio.sleep(0)
        work()

    async def second() -> Reply:
        work()
        return Reply(None)

    async def first() -> Reply:
        work()
        await fan_out(part, [1, 2])
        waiting = asyncio.create_task(part(3))
        await waiting
        work()
        return Reply.after(second())

    def handle(call: Call[Any]) -> Reply:
        work()
        return Reply.after(first())

    call = scene.call(3, 1, APIS[3].request())
    reply = scene.meter.handle(call, handle)
    while reply.preparation is not None:
        reply = await asyncio.create_task(reply.preparation)
    assert call.busy_s == clock_s[0] - 2 == 8


async def test_a_preparation_that_has_not_begun_may_be_closed() -> None:
    scene = Scene("request_percentage", 1)

    async def prepare() -> Reply:
        return Reply(None)

    def handle(call: Call[Any]) -> Reply:
        return Reply.after(prepare())

    preparation = scene.meter.handle(scene.call(3, 1, APIS[3].request()), handle).preparation
    assert preparation is not None
    preparation.close()


@pytest.mark.parametrize(("session_epoch", "session_id"), [(0, 0), (-1, 0), (3, 7)])
def test_a_fetch_over_the_quota_is_empty_and_not_charged(session_epoch: int, session_id: int) -> None:
    scene = Scene("consumer_byte_rate", 10)
    request = FetchRequest(session_id=7, session_epoch=session_epoch, max_bytes=1_000)
    call = scene.call(FETCH, 11, request)
    response, throttle_time_ms = scene.meter.charge(call, fetched(200))
    assert isinstance(response, FetchAnswer)
    assert (response.responses, response.session_id, throttle_time_ms) == ([], session_id, 10_000)
    answer = fetched(100)
    assert scene.meter.charge(call, answer) == (answer, 0)


def test_a_fetch_over_the_quota_leaves_no_new_session() -> None:
    scene = Scene("consumer_byte_rate", 10)
    call = scene.call(FETCH, 11, FetchRequest(session_id=0, session_epoch=0, max_bytes=1_000))
    session = scene.sessions.create(call.client.host, [], uses_topic_ids=False)
    assert session is not None
    answer = fetched(200)
    answer.session_id = session.session_id
    response, throttle_time_ms = scene.meter.charge(call, answer)
    assert isinstance(response, FetchAnswer)
    assert (response.session_id, throttle_time_ms) == (0, 10_000)
    assert scene.sessions.create(call.client.host, [], uses_topic_ids=False) is not None


def test_offsets_of_a_discarded_answer_are_in_the_next_answer() -> None:
    scene = Scene("consumer_byte_rate", 10)
    parts = [FetchedPartition("t", number, 0, 100, -1, -1) for number in (0, 1)]
    call = scene.call(FETCH, 11, FetchRequest(session_id=7, session_epoch=3, max_bytes=1_000))
    session = FetchSession(7, call.client.host, parts, uses_topic_ids=False)
    data = PartitionAnswer(parts[0], high_watermark=9, records=RecordChunks((b"x" * 200,), 200))
    offsets = PartitionAnswer(parts[1], high_watermark=9, log_start_offset=5)
    assert all(record_if_changed(session, 3, row) for row in (data, offsets))
    answer = FetchAnswer(session_id=7, responses=group_by_topic([data, offsets], by_id=False))
    assert scene.meter.charge(call, answer)[1] == 10_000
    assert record_if_changed(session, 4, offsets)
    assert not record_if_changed(session, 5, offsets)


def test_no_fetch_asks_for_more_than_the_quota_ever_allows() -> None:
    scene = Scene("consumer_byte_rate", 10)
    scene.handle(scene.call(FETCH, 11, FetchRequest(max_bytes=1_000, min_bytes=500)), fetched(0))
    assert (scene.handled[0].max_bytes, scene.handled[0].min_bytes) == (100, 100)


def test_time_is_limited_to_a_second_of_waiting() -> None:
    scene = Scene("request_percentage", 1)
    call = scene.call(3, 1, APIS[3].request())
    call.busy_s = 60.0
    assert scene.meter.charge(call, None) == (None, 1_000)


@pytest.mark.parametrize(("version", "refused"), [(5, False), (6, True)])
def test_topics_behind_an_empty_bucket_are_refused_to_those_who_know_it(version: int, *, refused: bool) -> None:
    scene = Scene("controller_mutation_rate", 1)
    call = scene.call(CREATE_TOPICS, version, CreateTopicsRequest())

    def create(passed: Call[Any]) -> Reply:
        part = passed.asking(CreateTopicsRequest())  # as a guard does
        part.charge_mutations(15)
        with pytest.raises(KafkaError, match="THROTTLING") if refused else nullcontext():
            part.charge_mutations(15)
        return Reply(CreateTopicsResponse())

    answer = scene.meter.handle(call, create).response
    assert scene.meter.charge(call, answer)[1] == (4_000 if refused else 19_000)
