"""A fetch from several leaders: none delays the others' data, and no data is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from coordinator.fleet.messages import Member
from gateway import fan_out
from gateway.config.limits import Limits
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import FetchedPartition, FetchSessions
from gateway.fetching.fetch_waits import FetchWaits
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.forwarding import asked_fetches, forwarded_fetch
from gateway.forwarding.forwarded_fetch import ForwardedFetches
from gateway.forwarding.waiting_fetch import WaitingFetch
from gateway.handlers.records import fetch
from gateway.handlers.records.fetch import TOPIC_ID_VERSION
from gateway.handlers.table import APIS
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster, Unread
from gateway.requests.context import Client as CallClient
from gateway.requests.context import Listener, RequestContext
from gateway.requests.reply import Reply, Response
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.codec import decode_request, encode_request, is_flexible, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest
from tests.unit.gateway.requests.test_routes import LEADERS, OTHERS

WAIT_S = 10
LONG_MS = 60_000
VERSION = 12
FETCH = APIS[1]
TOPIC_ID = uuid.UUID(int=7)
_Topic = FetchRequest.FetchTopic


@pytest.fixture(autouse=True, params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same fetches as if they had very many partitions: then each partition is a slice."""
    if request.param == "large":
        for module in (fetch, asked_fetches, forwarded_fetch):
            monkeypatch.setattr(module, "RESOLVED_AT_ONCE", 0)
        monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
        monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    return str(request.param)


@dataclass
class Asked:
    """A request to a leader, and its response."""

    leader: Member | None
    max_wait_ms: int
    max_bytes: int
    offsets: dict[int, int]
    answer: asyncio.Future[Response] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def say(self, rows: dict[int, bytes], error: ErrorCode = ErrorCode.NONE) -> None:
        """Records by partition; their log ends 10 offsets later. An outdated request is not waited for."""
        if self.answer.cancelled():
            return
        answers = [
            PartitionAnswer(
                FetchedPartition("t", number, offset, 1, -1, -1), error_code=error,
                high_watermark=-1 if error else offset + 10, log_start_offset=0,
                records=RecordChunks((rows.get(number, b""),), len(rows.get(number, b""))),
            )
            for number, offset in self.offsets.items()
        ]  # fmt: skip
        self.answer.set_result(FetchAnswer(responses=group_by_topic(answers, by_id=False)))


class Client:
    def __init__(self) -> None:
        self.calls: dict[Member | None, Call] = {}
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self.unread = Unread()
        self.remembered = RememberedPartitions(100)
        self.fetches = ForwardedFetches(self._ask, self.unread, self.remembered, lambda *_: None)
        self._sessions = FetchSessions(10)

    async def _ask(self, call: Call, leader: Member | None) -> Response:
        request = cast(FetchRequest, call.request)
        offsets = {row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions}
        self.calls[leader] = call
        asked = Asked(leader, request.max_wait_ms, request.max_bytes, offsets)
        self.asked.put_nowait(asked)
        return await asked.answer

    def fetch(
        self, offsets: dict[int, int], max_wait_ms: int = LONG_MS, version: int = VERSION, **fields: Any
    ) -> asyncio.Task[FetchAnswer]:
        rows = [
            _Topic.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1_000)
            for number, offset in offsets.items()
        ]
        options: dict[str, Any] = {"min_bytes": 1, "session_id": 0, "session_epoch": -1, **fields}
        request = FetchRequest(
            max_wait_ms=max_wait_ms, max_bytes=3_000, isolation_level=0, forgotten_topics_data=[],
            topics=[_Topic(topic="t", topic_id=TOPIC_ID, partitions=rows)] if rows else [], **options,
        )  # fmt: skip
        cluster = SimpleNamespace(
            config=SimpleNamespace(limits=Limits()), unread=self.unread, fetch_sessions=self._sessions,
            fetch_waits=FetchWaits(),
            topics=SimpleNamespace(cached_name={TOPIC_ID: "t"}.get),
        )  # fmt: skip
        context = RequestContext(CallClient("10.0.0.1:5"), Listener("single"), cast(Cluster, cluster))
        asked = Call(FETCH, version, 1, None, request, context)
        return asyncio.ensure_future(self._answer(self.fetches.run(asked, LEADERS)))

    async def _answer(self, reply: Reply) -> FetchAnswer:
        return cast(FetchAnswer, await reply.result())

    async def next_asked(self, count: int) -> dict[Member | None, Asked]:
        async with asyncio.timeout(WAIT_S):
            found = [await self.asked.get() for _ in range(count)]
        return {asked.leader: asked for asked in found}

    async def answer_next(self, rows: dict[int, bytes]) -> int:
        """Returns how long the leader may have waited."""
        async with asyncio.timeout(WAIT_S):
            asked = await self.asked.get()
        asked.say(rows)
        return asked.max_wait_ms

    async def know(self, offsets: dict[int, int]) -> None:
        """All leaders have returned the ends of their logs."""
        fetched = self.fetch(offsets, max_wait_ms=0)
        for asked in (await self.next_asked(len(offsets))).values():
            asked.say({})
        await rows(fetched)


async def rows(fetched: asyncio.Task[FetchAnswer]) -> dict[int, tuple[int, int, bytes]]:
    """(error, high watermark, records) by partition."""
    async with asyncio.timeout(WAIT_S):
        answer = await fetched
    return {
        row.partition_index: (row.error_code, row.high_watermark, b"".join(row.records.chunks))
        for topic in answer.responses
        for row in topic.partitions
    }


async def test_unknown_ends_of_logs_are_requested_first() -> None:
    client = Client()
    fetched = client.fetch({0: 5, 1: 6, 2: 7})
    asked = await client.next_asked(3)
    offsets = {leader: each.offsets for leader, each in asked.items()}
    assert offsets == {None: {0: 5}, OTHERS[0]: {1: 6}, OTHERS[1]: {2: 7}}
    assert {each.max_wait_ms for each in asked.values()} == {0}
    assert {each.max_bytes for each in asked.values()} == {1_000}
    for each in asked.values():
        each.say({})
    asked = await client.next_asked(3)
    assert all(0 < each.max_wait_ms <= LONG_MS for each in asked.values())
    asked[OTHERS[0]].say({1: b"records"})
    assert await rows(fetched) == {0: (0, 15, b""), 1: (0, 16, b"records"), 2: (0, 17, b"")}


async def test_a_defect_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that finds it tells nobody else."""
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0}, max_wait_ms=20)
    await client.next_asked(2)
    monkeypatch.setattr(WaitingFetch, "_row", Mock(side_effect=RuntimeError("defect")))
    with pytest.raises(RuntimeError, match="defect"):
        await rows(fetched)


async def test_a_leader_that_waits_is_not_asked_again() -> None:
    """Its response is used for the next fetch."""
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0})
    asked = await client.next_asked(2)
    asked[OTHERS[0]].say({1: b"one"})
    assert (await rows(fetched))[1] == (0, 10, b"one")
    asked[OTHERS[1]].say({2: b"two"})
    fetched = client.fetch({1: 1, 2: 0})
    again = await client.next_asked(1)
    assert again.keys() == {OTHERS[0]}
    assert await rows(fetched) == {1: (0, 10, b""), 2: (0, 10, b"two")}


async def test_records_of_an_offset_that_is_not_wanted_any_more_are_dropped() -> None:
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0})
    asked = await client.next_asked(2)
    asked[OTHERS[0]].say({1: b"one"})
    await rows(fetched)
    fetched = client.fetch({2: 50})
    asked[OTHERS[1]].say({2: b"of 0"})
    (await client.next_asked(1))[OTHERS[1]].say({2: b"of 50"})
    assert await rows(fetched) == {2: (0, 60, b"of 50")}


async def test_an_old_response_is_not_used_for_a_new_request_of_the_session() -> None:
    """The client has continued in between: with another leader and back, or with records from elsewhere."""
    client = Client()
    fetched = client.fetch({1: 50, 2: 0}, session_epoch=0)
    for asked in (await client.next_asked(2)).values():
        asked.say({2: b"two"})
    await rows(fetched)
    session = {"session_id": fetched.result().session_id}
    fetched = client.fetch({2: 1}, session_epoch=1, **session)
    asked_of = await client.next_asked(2)
    asked_of[OTHERS[1]].say({2: b"more"})
    await rows(fetched)
    fetched = client.fetch({1: 90}, session_epoch=2, **session)
    again = await client.next_asked(2)
    asked_of[OTHERS[0]].say({1: b"of 50"})
    again[OTHERS[0]].say({1: b"of 90"})
    assert (await rows(fetched))[1] == (0, 100, b"of 90")


async def test_requests_that_are_outdated_do_not_pile_up() -> None:
    """A client may ask a leader to wait for minutes, and leave that wait with the error of another partition."""
    client = Client()
    await client.know({1: 0, 2: 0})
    outdated = []
    for offset in range(5):
        fetched = client.fetch({1: offset, 2: 0})
        asked = await client.next_asked(2)
        asked[OTHERS[1]].say({}, ErrorCode.OFFSET_OUT_OF_RANGE)
        await rows(fetched)
        outdated.append(asked[OTHERS[0]])
    await asyncio.sleep(0)
    assert [each.answer.cancelled() for each in outdated] == [True] * 4 + [False]
    outdated[-1].say({1: b"of 4"})
    fetched = client.fetch({1: 4})
    assert await rows(fetched) == {1: (0, 14, b"of 4")}


async def test_an_error_is_returned_at_once() -> None:
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0})
    (await client.next_asked(2))[OTHERS[1]].say({}, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await rows(fetched) == {1: (0, 10, b""), 2: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, b"")}


async def test_a_suspended_leader_delays_no_other() -> None:
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0}, max_wait_ms=20)
    assert await rows(fetched) == {1: (0, 10, b""), 2: (0, 10, b"")}


async def many_turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_fetch_ends_with_its_timers_although_they_are_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an amount that clocks round away, or by almost a millisecond: nothing would look at it again."""
    client = Client()
    await client.know({0: 10, 1: 20})
    loop, timers = asyncio.get_running_loop(), list[Callable[[], object]]()

    def call_at(_: float, look: Callable[[], object]) -> asyncio.Handle:
        timers.append(look)
        return asyncio.Handle(look, (), loop)

    with monkeypatch.context() as early:
        early.setattr(loop, "call_at", call_at)
        fetched = client.fetch({0: 10, 1: 20})
        await many_turns()
    assert len(timers) == 2
    await client.next_asked(2)
    for expire in timers:
        assert not fetched.done()
        expire()
        await many_turns()
    async with asyncio.timeout(WAIT_S):
        assert (await fetched).error_code == ErrorCode.NONE


async def test_a_session_is_kept_here() -> None:
    """The first response has every partition, the next one only changes."""
    client = Client()
    fetched = client.fetch({1: 0, 2: 0}, session_epoch=0)
    for asked in (await client.next_asked(2)).values():
        asked.say({1: b"one"})
    assert (await rows(fetched)).keys() == {1, 2}
    session_id = fetched.result().session_id
    fetched = client.fetch({1: 1}, session_id=session_id, session_epoch=1)
    (await client.next_asked(2))[OTHERS[1]].say({2: b"two"})
    assert await rows(fetched) == {2: (0, 10, b"two")}
    wrong = client.fetch({}, session_id=session_id, session_epoch=1)
    async with asyncio.timeout(WAIT_S):
        assert (await wrong).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_session_that_another_connection_continues() -> None:
    """As in Kafka, the fetch that still waits fails: its records would be for the offsets of the later one. It does so
    at once: it holds memory for all partitions."""
    first, second = Client(), Client()
    second._sessions = first._sessions
    fetched = first.fetch({1: 0, 2: 0}, session_epoch=0)
    for asked in (await first.next_asked(2)).values():
        asked.say({1: b"one"})
    await rows(fetched)
    session_id = fetched.result().session_id
    earlier = first.fetch({1: 1}, session_id=session_id, session_epoch=1)
    await first.next_asked(2)
    second.fetch({1: 50}, session_id=session_id, session_epoch=2)
    await second.next_asked(2)
    async with asyncio.timeout(WAIT_S):
        answer = await earlier
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    for client in (first, second):
        client.fetches.forget()


async def test_a_fetch_waits_for_no_more_than_its_answer_may_have() -> None:
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0}, min_bytes=1 << 20)
    for each in (await client.next_asked(2)).values():
        each.say(dict.fromkeys(each.offsets, bytes(1_500)))
    assert {len(records) for _, _, records in (await rows(fetched)).values()} == {1_500}


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_leaders_are_asked_in_the_version_of_the_client(version: int) -> None:
    client = Client()
    client.fetch({1: 50}, version=version, max_wait_ms=7)
    asked = client.calls[(await client.next_asked(1))[OTHERS[0]].leader]
    frame = memoryview(b"".join(encode_request(FETCH.request, version, 1, None, asked.request)))[4:]
    header = parse_header(frame, flexible=is_flexible(FETCH.request, version))
    request = decode_request(FetchRequest, version, frame, header.body)
    [topic] = request.topics
    [part] = topic.partitions
    assert (part.partition, part.fetch_offset, part.partition_max_bytes) == (1, 50, 1_000)
    if version >= TOPIC_ID_VERSION:
        assert topic.topic_id == TOPIC_ID
    else:
        assert topic.topic == "t"
    assert (request.session_id, request.session_epoch) == (0, -1)
    client.fetches.forget()


async def test_what_is_asked_ends_with_the_client() -> None:
    client = Client()
    fetched = client.fetch({1: 0})
    asked = await client.next_asked(1)
    fetched.cancel()
    client.fetches.forget()
    async with asyncio.timeout(WAIT_S):
        await asyncio.wait([asked[OTHERS[0]].answer])
    assert asked[OTHERS[0]].answer.cancelled()


async def test_what_was_not_handed_out_yet_counts_as_unread() -> None:
    client = Client()
    await client.know({0: 5, 1: 6})
    fetched = client.fetch({0: 5, 1: 6})
    asked = await client.next_asked(2)
    asked[OTHERS[0]].say({1: b"records"})
    assert (await rows(fetched))[1][2] == b"records"
    assert client.unread.size_bytes == 0
    asked[None].say({0: b"late"})  # the client has its response
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.unread.size_bytes == 4
    fetched = client.fetch({0: 5, 1: 7})
    assert (await rows(fetched))[0][2] == b"late"
    assert client.unread.size_bytes == 0
    client.fetches.forget()


async def test_a_client_that_has_gone_leaves_nothing_unread() -> None:
    client = Client()
    await client.know({0: 5, 1: 6})
    fetched = client.fetch({0: 5, 1: 6})
    asked = await client.next_asked(2)
    asked[OTHERS[0]].say({1: b"records"})
    await rows(fetched)
    asked[None].say({0: b"late"})
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.unread.size_bytes == 4
    client.fetches.forget()
    assert client.unread.size_bytes == 0
