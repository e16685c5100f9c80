"""Both ways of Fetch requests give the same responses, and leave the same state, after any changes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gateway.dispatch import Dispatcher
from gateway.requests.policy import AllAllowed
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE
from protocol.kafka.acl import AclOperation, ResourceType
from tests.bench.inside.scene import FakeClient
from tests.unit.gateway.handlers.both_charged import EXPIRED_MS, BothCharged
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, Way
from tests.unit.gateway.handlers.records.fetches import END, batch, fetch, opened, part, produce, topic_id

TOPICS = (TOPIC, OTHER)
STEPS = 100
OFFSETS = [END - 6, END - 3, END, END, END, END]
ODD_OFFSETS = [-1, 0, 3, END + 3, END + 30]
ANY_EPOCH = 9
"""Higher than the epoch of the fleet."""


class Some(AllAllowed):
    """Allows what is not denied at the moment."""

    denied: frozenset[str] = frozenset()

    def version(self) -> int:
        """Another one for other topics."""
        return hash(self.denied)

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name not in self.denied


class History:
    """Changes and requests that are drawn, for both ways."""

    def __init__(
        self, charged: BothCharged, rights: Callable[[Way], Some], random: Random, max_wait_ms: int
    ) -> None:
        self.both: Any = charged.ways
        self.charged, self.rights, self.random, self.max_wait_ms = charged, rights, random, max_wait_ms
        self.clients: dict[Way, list[FakeClient]] = {}
        self.elsewhere: dict[Way, set[tuple[str, int]]] = {}
        self.version = random.choice([11, 12, 13, 17])
        self.fields: dict[str, Any] = {}
        """Of the requests that come one after the other."""
        self.both.each(self._prepare)

    def _prepare(self, way: Way) -> None:
        self.clients[way] = [self._connect(way), self._connect(way)]
        elsewhere = self.elsewhere[way] = set()
        way.scene.fleet.leads = lambda topic, partition: (topic, partition) not in elsewhere  # type: ignore[method-assign]

    def _connect(self, way: Way) -> FakeClient:
        client = way.scene.connect()
        client.connection._client.mute = self.charged.muted_ms[way].append
        return client

    # Changes

    def change(self, *without: Callable[[], None]) -> None:
        changes: list[Callable[[], None]] = [
            self._deny, self._move, self._configure, self._delete, self._make_anew, self._move_start, self._close_log,
            self._set_quota, self._reconnect, self._evict, self._fill_unread, self._wait, self._refresh,
        ]  # fmt: skip
        self.random.choice([each for each in changes if each not in without])()

    def heal(self) -> None:
        self.charged.set(CONSUMER_BYTE_RATE, None)
        self.charged.set(REQUEST_PERCENTAGE, None)
        self.both.each(self._heal)

    def _heal(self, way: Way) -> None:
        self.rights(way).denied = frozenset()
        self.elsewhere[way].clear()
        way.scene.cluster.unread.size_bytes = 0

    def _topic(self) -> str:
        return self.random.choice(TOPICS)

    def _deny(self) -> None:
        topic = self._topic()

        def deny(way: Way) -> None:
            self.rights(way).denied ^= {topic}

        self.both.each(deny)

    def _move(self) -> None:
        key = self._topic(), self.random.randrange(2)

        def move(way: Way) -> None:
            self.elsewhere[way] ^= {key}
            for listener in way.scene.fleet._listeners:
                listener.leaders_changed()

        self.both.each(move)

    def _configure(self) -> None:
        configs = self.random.choice([{}, {"retention.ms": "1"}])
        self._change_topic(self._topic(), configs=configs)

    def _change_topic(self, name: str, **fields: Any) -> None:
        def change(way: Way) -> None:
            topics = way.scene.cluster.topics
            if name in topics._topics:
                topics._remember(replace(topics._topics[name], **fields))

        self.both.each(change)

    def _refresh(self) -> None:
        self._change_topic(self._topic(), loaded_at=time.monotonic())

    def _make_anew(self) -> None:
        name = self._topic()
        self._change_topic(name, topic_id=self.random.choice([uuid.UUID(int=len(name)), topic_id(name)]))

    def _delete(self) -> None:
        name = self._topic()
        self.both.each(lambda way: way.scene.cluster.topics._gone(name))

    def _logs(self, act: Callable[[Any], None]) -> None:
        key = self._topic(), self.random.randrange(2)

        def change(way: Way) -> None:
            found = way.scene.cluster.logs.find(*key)
            if found is not None:
                act(found)

        self.both.each(change)

    def _move_start(self) -> None:
        offset = self.random.choice([0, 3, END])

        def move(log: Any) -> None:
            log.start.offset = min(offset, log.end_offset)
            log.waiters.wake()

        self._logs(move)

    def _close_log(self) -> None:
        self._logs(lambda log: log.start_closing())

    def _set_quota(self) -> None:
        self.charged.now_ms += EXPIRED_MS
        quota = self.random.choice([CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE])
        self.charged.set(quota, self.random.choice([None, None, 1, 500, 100_000]))

    def _wait(self) -> None:
        self.charged.now_ms += self.random.choice([1, 900, 5_000])

    def _reconnect(self) -> None:
        number = self.random.randrange(2)

        def reconnect(way: Way) -> None:
            self.clients[way][number].close()
            self.clients[way][number] = self._connect(way)

        self.both.each(reconnect)

    def _evict(self) -> None:
        def evict(way: Way) -> None:
            sessions = way.scene.cluster.fetch_sessions
            for session in [*sessions._sessions.values()][:1]:
                sessions._remove(session)

        self.both.each(evict)

    def _fill_unread(self) -> None:
        size_bytes = self.random.choice([0, 0, 1 << 40])
        self.both.each(lambda way: setattr(way.scene.cluster.unread, "size_bytes", size_bytes))

    # Requests

    def _number(self) -> int:
        return int(self.random.random() < 0.1)

    def frame(self) -> bytes:
        random = self.random
        version = self.version if random.random() < 0.95 else random.choice([10, 12, 13, 18])
        rows: dict[str, list[dict[str, int]]] = {}
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            odd = {"current_leader_epoch": random.choice([0, ANY_EPOCH])} if random.random() < 0.03 else {}
            odd |= {"partition_max_bytes": random.choice([0, 1, 200])} if random.random() < 0.03 else {}
            offset = random.choice(ODD_OFFSETS if random.random() < 0.05 else OFFSETS)
            index = random.randrange(3 if random.random() < 0.05 else 2)
            rows.setdefault(self._topic(), []).append(part(offset, index, **odd))
        if not self.fields or random.random() < 0.1:
            unusual: list[dict[str, Any]] = [
                {"min_bytes": 0}, {"min_bytes": 5_000}, {"max_bytes": 150}, {"isolation_level": 1}
            ]  # fmt: skip
            other = random.choice([{}, {}, {}, *unusual])
            self.fields = {"max_wait_ms": self.max_wait_ms, **other, "in": random.random() < 0.6}
        fields = {**self.fields}
        if fields.pop("in"):
            fields |= self._session()
        elif not rows:
            rows = {TOPIC: [part(END)]}
        if fields.get("session_epoch", -1) > 0 and random.random() < 0.1:
            topic = self._topic()
            named = {"topic": topic} if version < 13 else {"topic_id": topic_id(topic)}
            fields["forgotten_topics_data"] = [{**named, "partitions": [random.randrange(2)]}]
        return fetch(version, rows, **fields)

    def _session(self) -> dict[str, int]:
        random = self.random
        sessions = [*self.both.general.scene.cluster.fetch_sessions._sessions.values()]
        if not sessions or random.random() < 0.05:
            return {"session_epoch": 0, "session_id": random.choice([0, 0, 5_000])}
        session = sessions[-1] if random.random() < 0.9 else random.choice(sessions)
        epoch = random.choice([-1, 0, 1, session.epoch - 1]) if random.random() < 0.05 else session.epoch
        return {"session_id": session.session_id, "session_epoch": epoch}

    async def ask(self) -> None:
        frame, number = self.frame(), self._number()

        async def run(way: Way) -> list[bytes]:
            way.client = self.clients[way][number]
            return await way.answers(frame)

        await self.both.run(run)

    async def ask_and_change(self) -> None:
        """The change, or records, come while the fetch may be waiting."""
        frame, number, random = self.frame(), self._number(), self.random
        produced = produce(batch(), self._topic(), random.randrange(2)) if random.random() < 0.6 else None
        changes: list[Callable[[Way], None]] = []
        if random.random() < 0.7:
            self.both.each, each = changes.append, self.both.each
            self.change(self._reconnect, self._set_quota)
            self.both.each = each

        async def run(way: Way) -> list[bytes]:
            way.client = self.clients[way][number]
            way.client.ask(frame)
            await way.scene.run()
            for change in changes:
                change(way)
            if produced is not None:
                producer = way.scene.connect()
                producer.ask(produced)
                await way.scene.until_answered([producer])
            await way.scene.until_answered([way.client])
            found = b"".join(map(bytes, way.client.received))
            way.client.received.clear()
            return [found]

        await self.both.run(run)

    async def let_logs_close(self) -> None:
        """This is done in the background."""
        for way in (self.both.general, self.both.straight):
            for _ in range(10):
                await way.scene.run()
                way.broker.say(way.broker.answers())

    async def step(self) -> None:
        drawn = self.random.random()
        if drawn < 0.08:
            self.heal()
        elif drawn < 0.15:
            self.change()
        elif drawn < 0.3:
            await self.ask_and_change()
        else:
            await self.ask()
        await self.let_logs_close()
        self.charged.compare()


@pytest.mark.parametrize("seed", range(30))
async def test_any_history(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], seed: int) -> None:
    """On a busy machine, a fetch can end before what happens while it waits. Then the history runs again, more
    slowly."""
    try:
        with monkeypatch.context() as patched:
            await run_history(patched, sections, seed, max_wait_ms=10)
    except AssertionError:
        with monkeypatch.context() as patched:
            await run_history(patched, sections, seed, max_wait_ms=500)


async def run_history(
    monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], seed: int, max_wait_ms: int
) -> None:
    """A log that is opened again is read in the background: how much has arrived depends on this machine. A history
    ends when two general paths differ for this reason."""
    both = await opened(monkeypatch, sections, kept=True)
    some = {way.scene.server.dispatcher: Some() for way in (both.general, both.straight)}
    monkeypatch.setattr(Dispatcher, "_policy", lambda dispatcher, *_: some[dispatcher])
    charged = BothCharged(both, monkeypatch)
    history = History(charged, lambda way: some[way.scene.server.dispatcher], Random(seed), max_wait_ms)
    for _ in range(STEPS):
        both.taken = 0
        try:
            await history.step()
        except AssertionError:
            if both.taken:
                raise
            pytest.skip("two general paths have read different amounts")
