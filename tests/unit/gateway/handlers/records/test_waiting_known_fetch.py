"""Both ways of a Fetch that waits give the same response, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.dispatch import Dispatcher
from gateway.handlers.records import fetch as general
from gateway.handlers.records import tail_fetch
from gateway.network.connection import KafkaConnection
from gateway.requests.context import Listener
from gateway.requests.policy import AllAllowed
from protocol.kafka.acl import AclOperation, ResourceType
from tests.bench.inside.scene import FakeClient
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, Way
from tests.unit.gateway.handlers.records.fetches import (
    END,
    SOME_VERSIONS,
    Fetches,
    batch,
    fetch,
    going_on,
    one,
    opened,
    opening,
    part,
    produce,
    waits,
)


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> Fetches:
    return await opened(monkeypatch, sections)


@pytest.mark.parametrize("version", SOME_VERSIONS)
async def test_a_fetch_waits_for_records(both: Fetches, version: int) -> None:
    data = batch()
    assert data[21:] in await waits(both, version, lambda _way: produce(data))


async def test_a_fetch_waits_until_its_time_is_over(both: Fetches) -> None:
    await both.take(*(one(17, END) for _ in range(3)), one(17, 0, min_bytes=1 << 20), taken=2)
    await both.take(opening(17, max_wait_ms=0), *(going_on(17, epoch) for epoch in (1, 2, 3)), taken=2)


async def test_a_fetch_waits_for_enough_records(both: Fetches) -> None:
    data = batch(300)
    found = await waits(both, 12, lambda _way: produce(data), offset=END - 3, min_bytes=1_000)
    assert data[21:] in found
    assert len(found) > 2 * len(batch())


async def test_a_fetch_waits_for_no_more_than_its_answer_may_have(both: Fetches) -> None:
    """As in Kafka: otherwise it would wait for max_wait although all that it may get is there."""

    async def run(way: Way) -> list[bytes]:
        found = []
        for _ in range(2):
            way.client.ask(one(17, 0, min_bytes=1 << 20, max_bytes=len(batch()), max_wait_ms=30_000))
            await way.scene.run()
            found.append(b"".join(map(bytes, way.client.received)))
            way.client.received.clear()
        return found

    assert all(await both.run(run))
    assert both.taken == 1


async def test_a_session_waits(both: Fetches) -> None:
    """For both batches: which one comes first, or whether they come together, depends on this machine."""
    until_both: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 2 * len(batch())}

    async def run(way: Way) -> list[bytes]:
        opened = opening(17, max_wait_ms=0)
        found = await way.answers(opened, *(going_on(17, epoch, {TOPIC: [part(0)]}, **until_both) for epoch in (1, 2)))
        way.client.ask(going_on(17, 3, {TOPIC: [part(END)]}, **until_both))
        await way.scene.run()
        producer = way.scene.connect()
        for topic, index in ((OTHER, 1), (TOPIC, 0)):
            producer.ask(produce(batch(), topic, index))
        await way.scene.until_answered([producer, way.client])
        found.append(b"".join(map(bytes, way.client.received)))
        way.client.received.clear()
        more = {OTHER: [part(END + 3, 1)], TOPIC: [part(0)]}
        return [*found, *await way.answers(going_on(17, 4, more, **until_both), going_on(17, 5, **until_both))]

    await both.run(run)
    assert both.taken >= 4


OUTDATED = (71).to_bytes(2, "big")
"""INVALID_FETCH_SESSION_EPOCH."""


async def answered_by(way: Way, other: bytes) -> tuple[bytes, FakeClient]:
    """The answer to a fetch that waits in a session, when another connection sends the other request."""
    await way.answers(opening(17, max_wait_ms=0), *(going_on(17, epoch, max_wait_ms=0) for epoch in (1, 2)))
    way.client.ask(going_on(17, 3, max_wait_ms=600_000))
    await way.scene.run()
    assert not way.client.received
    another = way.scene.connect()
    another.ask(other)
    await way.scene.until_answered([way.client])
    answer = b"".join(map(bytes, way.client.received))
    way.client.received.clear()
    return answer, another


@pytest.mark.parametrize("many", [1, 500])
async def test_one_fetch_of_a_session_waits(both: Fetches, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """A small request makes it hold memory for all partitions of the session, and there may be many connections."""
    monkeypatch.setattr(general, "RESOLVED_AT_ONCE", many)

    async def run(way: Way) -> list[bytes]:
        answer, another = await answered_by(way, going_on(17, 4, max_wait_ms=600_000))
        assert not another.received
        producer = way.scene.connect()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, another])
        return [answer, b"".join(map(bytes, another.received))]

    first, second = await both.run(run)
    assert OUTDATED in first
    assert OUTDATED not in second


@pytest.mark.parametrize("many", [1, 500])
async def test_no_fetch_of_a_closed_session_waits(both: Fetches, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(general, "RESOLVED_AT_ONCE", many)

    async def run(way: Way) -> list[bytes]:
        answer, _ = await answered_by(way, fetch(17, {}, session_id=5_000))
        assert not any(log.waiters for _, log in way.scene.cluster.logs.all_open())
        return [answer]

    assert OUTDATED in (await both.run(run))[0]


@pytest.mark.parametrize("many", [1, 500])
async def test_no_fetch_waits_for_a_client_that_sends_nothing_more(
    both: Fetches, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """It may have gone. If it still reads, it gets what there is."""
    monkeypatch.setattr(general, "RESOLVED_AT_ONCE", many)

    async def run(way: Way) -> list[bytes]:
        await way.answers(opening(17, max_wait_ms=0), *(going_on(17, epoch, max_wait_ms=0) for epoch in (1, 2)))
        way.client.ask(going_on(17, 3, max_wait_ms=600_000))
        await way.scene.run()
        assert not way.client.received
        assert way.client.connection.eof_received()
        await way.scene.until_answered([way.client])
        assert not any(log.waiters for _, log in way.scene.cluster.logs.all_open())
        return [b"".join(map(bytes, way.client.received))]

    assert (await both.run(run))[0]


@pytest.mark.parametrize("version", [11, 17])
async def test_a_log_that_is_closed_meanwhile(both: Fetches, version: int) -> None:
    await waits(both, version, lambda way: way.log().start_closing())


async def test_a_topic_that_is_deleted_meanwhile(both: Fetches) -> None:
    def delete(way: Way) -> None:
        way.scene.cluster.topics._gone(TOPIC)

    assert b"\0\6" in await waits(both, 17, delete)


def move(way: Way) -> None:
    """Another gateway leads all partitions."""
    way.scene.fleet.leads = lambda *_: False  # type: ignore[method-assign]
    for listener in way.scene.fleet._listeners:
        listener.leaders_changed()


async def test_a_partition_that_moves(both: Fetches) -> None:
    assert b"\0\6" in await waits(both, 17, move)
    await both.take(one(17, 0), one(17, END), taken=0)


async def test_a_partition_that_moves_between_fetches(both: Fetches) -> None:
    await both.take(opening(17), going_on(17, 1), going_on(17, 2), taken=1)
    both.each(move)
    await both.take(going_on(17, 3), going_on(17, 4), taken=0)


async def test_a_topic_that_is_looked_up_again(both: Fetches) -> None:
    def look_up(way: Way) -> bytes:
        way.configure()
        return produce(batch())

    await waits(both, 17, look_up)
    both.each(Way.configure)
    await both.take(one(17, 0), one(17, 3), taken=1)
    both.each(lambda way: way.configure(retention_ms="1"))
    await both.take(one(17, 0), one(17, 3), taken=1)


async def test_a_log_start_that_moves(both: Fetches) -> None:
    def delete_records(way: Way) -> None:
        way.log().start.offset = END
        way.log().waiters.wake()

    await waits(both, 12, delete_records, offset=END - 3, min_bytes=1_000)
    await both.ask(one(12, 0), one(12, END), one(12, END))


class Some(AllAllowed):
    """Allows the topics that are listed at that moment."""

    def __init__(self) -> None:
        self.topics = {TOPIC, OTHER}

    def version(self) -> int:
        """Another one for other topics."""
        return hash(frozenset(self.topics))

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name in self.topics


async def test_rights_count_at_once(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Some()
    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: some)
    both.each(Way.reconnect)
    frames = [one(17, 0), fetch(17, {TOPIC: [part(0)], OTHER: [part(0)]}), one(17, 3)]
    await both.take(*frames, taken=2)
    some.topics.discard(OTHER)
    await both.take(*frames, taken=2)
    some.topics.clear()
    await both.take(*frames, taken=0)


async def test_rights_that_are_withdrawn_meanwhile(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Some()
    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: some)
    both.each(Way.reconnect)

    def withdraw(_way: Way) -> bytes:
        some.topics.clear()
        return produce(batch(), OTHER)

    async def run(way: Way) -> list[bytes]:
        some.topics.update((TOPIC, OTHER))
        producer = way.scene.connect()
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END, max_wait_ms=30_000))
        producer.ask(produce(batch()))
        await way.scene.run(1)
        some.topics.clear()
        await way.scene.until_answered([way.client, producer])
        found.append(b"".join(map(bytes, way.client.received)))
        way.client.received.clear()
        return found

    found = await both.run(run)
    assert (29).to_bytes(2, "big") in found[-1]


async def test_while_clients_do_not_read_their_answers(both: Fetches) -> None:
    await both.take(one(17, 0), one(17, 3), taken=1)
    both.each(lambda way: setattr(way.scene.cluster.unread, "size_bytes", 1 << 40))
    await both.take(one(17, 0), one(17, 3), taken=0)


async def test_a_client_that_disconnects_leaves_nothing(both: Fetches) -> None:
    async def run(way: Way) -> list[bytes]:
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END, max_wait_ms=30_000))
        await way.scene.run()
        assert way.log().waiters
        way.client.close()
        await way.scene.run()
        assert not way.log().waiters
        return found

    await both.run(run)
    both.each(Way.reconnect)
    await both.ask(one(17, 0))


async def test_later_requests_wait_for_the_answer(both: Fetches) -> None:
    async def run(way: Way) -> list[bytes]:
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END) + produce(batch()) + one(17, END) + one(17, 0))
        return [*found, *await way.answers()]

    await both.run(run)
    assert both.taken == 3


async def test_two_fetches_of_a_forwarding_gateway(both: Fetches) -> None:
    """Its connection sends responses in the order in which they are ready."""

    async def run(way: Way) -> list[bytes]:
        producer = way.scene.connect()
        link = KafkaConnection(way.scene.server, Listener(FORWARDING_LISTENER), answers_in_order=False)
        way.client = FakeClient(link)
        wait: dict[str, Any] = {"max_wait_ms": 30_000}
        found = await way.answers(one(12, 0, **wait))
        first, second = one(12, END, **wait), fetch(12, {TOPIC: [part(END + 3, index=1)]}, max_wait_ms=1_000)
        way.client.ask(first + second + one(12, END + 3, max_wait_ms=500) + one(12, 3, **wait))
        await way.scene.run()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, way.client])
        return [*found, *sorted(map(bytes, way.client.received))]

    await both.run(run)
    assert both.taken == 1


async def test_a_fetch_of_a_forwarding_gateway_keeps_its_offsets(both: Fetches) -> None:
    """It has left the fast path, and waits still, when the next fetch asks for other offsets."""

    async def run(way: Way) -> list[bytes]:
        producer = way.scene.connect()
        link = KafkaConnection(way.scene.server, Listener(FORWARDING_LISTENER), answers_in_order=False)
        way.client = FakeClient(link)
        found = await way.answers(one(12, 0, max_wait_ms=30_000))
        way.client.ask(one(12, END, max_wait_ms=30_000))
        way.configure(retention_ms="1")
        way.log().waiters.wake()
        await way.scene.run()
        way.client.ask(one(12, 0, max_wait_ms=30_000))
        await way.scene.run()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, way.client])
        return [*found, *sorted(map(bytes, way.client.received))]

    await both.run(run)
    assert both.taken == 2


async def test_a_defect_ends_the_connection(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(way: Way) -> bytes:
        way.log().reader.read = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
        return produce(batch())

    assert await waits(both, 17, fail) == b"closed"


async def test_connections_forget_what_they_fetch_if_others_need_the_room(both: Fetches) -> None:
    """Also while they wait. They remember it again; nothing is left when they have gone."""

    async def run(way: Way) -> list[bytes]:
        remembered = way.scene.cluster.fetched_tails
        remembered._most = 4
        clients, found = [way.client, way.scene.connect()], []
        wait: dict[str, Any] = {"max_wait_ms": 30_000}
        frames = one(12, 0, **wait), fetch(12, {TOPIC: [part(3), part(0, 1)]}, **wait)
        for _ in range(3):
            for way.client in clients:
                found += await way.answers(*frames)
        waiting, way.client = clients
        waiting.ask(one(12, END, **wait))
        await way.scene.run()
        found += await way.answers(*frames)
        assert remembered._count <= 4
        producer = way.scene.connect()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, waiting])
        found.append(b"".join(map(bytes, waiting.received)))
        for client in clients:
            client.close()
        await way.scene.run()
        assert not remembered._counts and not remembered._count
        return found

    await both.run(run)
    assert both.taken == 13


async def test_a_fetch_ends_if_others_need_its_memory(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_fetch, "FEW", 1)

    async def run(way: Way) -> list[bytes]:
        wait: dict[str, Any] = {"max_wait_ms": 600_000}
        both_ends = fetch(12, {TOPIC: [part(END), part(END, 1)]}, **wait)
        found = await way.answers(one(12, 0, **wait))
        waiting = way.client
        waiting.ask(both_ends)
        await way.scene.run()
        assert not waiting.received
        waits = way.scene.cluster.fetch_waits
        waits._budget_bytes = 0
        waits.begin(lambda: None, 1)
        await way.scene.until_answered([waiting])
        assert not waits._waiting
        return [*found, b"".join(map(bytes, waiting.received))]

    await both.run(run)
    assert both.taken == 1
