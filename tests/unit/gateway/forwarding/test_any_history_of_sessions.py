"""A fetch session at a single address, while leaders change, restart and are lost: each record arrives once."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from coordinator.fleet.messages import Member
from gateway import fan_out
from gateway.fetching.fetch_session import FetchSessions
from gateway.forwarding import asked_fetches, fetch_relay, forwarded_fetch, waiting_fetch
from gateway.handlers.records import fetch as fetch_handler
from protocol.kafka.messages.records import FetchRequest
from tests.unit.gateway.forwarding.forwarding_scene import FakeFleet, FakeLink, Scene
from tests.unit.gateway.forwarding.session_scene import (
    FETCH,
    VERSION,
    Consumer,
    Leader,
    Log,
    let_run,
    restarted,
)
from tests.unit.gateway.requests.test_routes import OTHERS

HISTORIES = int(os.environ.get("SESSION_HISTORIES", "25"))
FIRST_SEED = int(os.environ.get("SESSION_SEED", "0"))
STEPS, PARTITIONS, WAIT_S = 50, range(1, 6), 10


class Fleet(FakeFleet):
    def __init__(self, logs: dict[int, Log]) -> None:
        super().__init__()
        self.logs = logs
        self.by_node: dict[int, Member] = {each.node_id: each for each in OTHERS}

    @property
    def members(self) -> list[Member]:
        return [*self.by_node.values()]

    def leader(self, _topic: str, partition: int) -> Member | None:
        leader = self.logs[partition].leader
        return None if leader is None else self.by_node[leader]


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.logs = {each: Log(self.random.choice([1, 1, 2])) for each in PARTITIONS}
        self.scene = Scene()
        self.fleet = self.scene.fleet = Fleet(self.logs)
        self.scene.cluster.fleet = self.fleet  # type: ignore[misc, assignment]  # a fake that can be changed
        self.leaders = {each: Leader(each, self.logs, self.random) for each in (1, 2)}
        self.consumer = Consumer(dict.fromkeys(PARTITIONS, 0))
        self.left: dict[int, int] = {}
        """Positions of partitions that are not assigned."""
        self.pending: list[tuple[FakeLink, int]] = []
        """Requests that leaders have not answered."""
        self._seen: dict[FakeLink, int] = {}
        self.restarts = 0

    # What happens

    async def play(self) -> None:
        kinds = [
            self._append, self._append, self._move, self._restart, self._forget, self._assign, self._evict,
            self._reconnect, self._wrong_epoch, self._lose,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(kinds)()
            if self.random.random() < 0.05:
                await self._steal()
            if self.random.random() < 0.7:
                await self._fetch(calm=False)
        await self._end()

    def _append(self) -> None:
        self.random.choice([*self.logs.values()]).end += self.random.randint(1, 5)

    def _move(self) -> None:
        new = self.random.choice([1, 2, None])
        if self.random.random() < 0.5:
            self.random.choice([*self.logs.values()]).leader = new
        else:  # one gateway gets all of them
            for log in self.logs.values():
                log.leader = new
        self.fleet.epoch += 1

    def _restart(self) -> None:
        node_id = self.random.choice([1, 2])
        for link in self.scene.opened:
            if link.member.node_id == node_id and not link.lost:
                self._lose_link(link)
        self.restarts += 1
        self.fleet.by_node[node_id] = restarted(self.fleet.by_node[node_id], self.restarts)
        self.leaders[node_id].sessions.clear()
        self.fleet.epoch += 1

    def _lose(self) -> None:
        if links := [each for each in self.scene.opened if not each.lost]:
            self._lose_link(self.random.choice(links))

    def _lose_link(self, link: FakeLink) -> None:
        self._note_sent(link)
        for each in [each for each in self.pending if each[0] is link]:
            if self.random.random() < 0.5:  # the leader has answered, and the answer is lost
                self._answer_in_vain(*each)
        link.lose()

    def _answer_in_vain(self, link: FakeLink, position: int) -> None:
        vain = FakeLink(link.member, lambda _: None)
        vain.sent, vain._waiting = link.sent, dict.fromkeys(link._waiting, lambda _: None)
        self.leaders[link.member.node_id].answer(vain, position)

    def _forget(self) -> None:
        if len(self.consumer.positions) > 1:
            partition = self.random.choice([*self.consumer.positions])
            self.left[partition] = self.consumer.positions.pop(partition)

    def _assign(self) -> None:
        for partition in [*self.left]:
            self.consumer.positions[partition] = self.left.pop(partition)

    def _evict(self) -> None:
        if self.random.random() < 0.5:
            self.scene.cluster.fetch_sessions = FetchSessions(10)  # type: ignore[misc]
        else:
            self.leaders[self.random.choice([1, 2])].sessions.clear()

    def _reconnect(self) -> None:
        """The client goes on with its session over another connection."""
        self.scene.forwarder.close()
        self.scene.forwarder = self.scene.connect()

    async def _steal(self) -> None:
        """Another connection of the host names the session, and gets an answer or an error."""
        other = replace(self.consumer, positions={})
        mine, self.scene.forwarder = self.scene.forwarder, self.scene.connect()
        await self._ask(other.request(), calm=True)
        self.scene.forwarder.close()
        self.scene.forwarder = mine

    def _wrong_epoch(self) -> None:
        if self.consumer.next_epoch:
            self.consumer.next_epoch += self.random.choice([1, -1])

    # One fetch

    async def _fetch(self, *, calm: bool) -> None:
        self.consumer.take(await self._ask(self.consumer.request(), calm=calm))

    async def _ask(self, request: FetchRequest, *, calm: bool) -> Any:
        answer = asyncio.ensure_future(self.scene.ask(FETCH, VERSION, request).decoded())
        async with asyncio.timeout(WAIT_S):
            while not answer.done():
                await let_run()
                self._answer_some(calm=calm)
        return await answer

    def _answer_some(self, *, calm: bool) -> None:
        for link in [*self.scene.opened]:
            self._note_sent(link)
        self.random.shuffle(self.pending)
        while self.pending and (calm or self.random.random() < 0.5):
            link, position = self.pending.pop()
            if link.lost:
                continue
            self.leaders[link.member.node_id].answer(link, position)
        if not calm and self.random.random() < 0.05:
            self.random.choice([self._lose, self._move, self._append])()

    def _note_sent(self, link: FakeLink) -> None:
        if not link.lost:
            self.pending += [(link, each) for each in range(self._seen.get(link, 0), len(link.sent))]
            self._seen[link] = len(link.sent)

    async def _end(self) -> None:
        self._assign()
        for log in self.logs.values():
            log.leader = log.leader or 1
        self.fleet.epoch += 1
        for _ in range(sum(log.end for log in self.logs.values()) + 5):
            await self._fetch(calm=True)
        assert self.consumer.positions == {each: log.end for each, log in self.logs.items()}
        self.scene.forwarder.close()
        await let_run()
        assert self.scene.unread.size_bytes == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
async def test_any_history(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_fetch, "GRACE_S", 0.002)
    if seed % 2:  # as if there were very many partitions: then each is a slice
        for module in (fetch_handler, asked_fetches, forwarded_fetch, fetch_relay):
            monkeypatch.setattr(module, "RESOLVED_AT_ONCE", 0)
        monkeypatch.setattr(fetch_relay, "MANY_BYTES", 0)
        monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
        monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    await History(seed).play()
