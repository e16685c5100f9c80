"""Whole connections in any history: each request is answered once and in its turn, or its connection ends.

`CONNECTION_SEEDS=1000:2000` runs other histories, `CONNECTION_SEEDS=1234` one of them.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from random import Random
from typing import cast

import pytest

from gateway.login import exchanges
from protocol.sasl.scram import credential_of
from tests.unit.gateway.network.virtual_loop import VirtualLoop
from tests.unit.gateway.network.whole.client import APIS, PLAIN, WholeClient
from tests.unit.gateway.network.whole.forms import Form, contexts, renewed, some_form
from tests.unit.gateway.network.whole.gateway import WholeGateway
from tests.unit.gateway.network.whole.logins import some_way

STEPS = 40
MAX_CLIENTS = 6
HOSTS = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
FOUND = [95, 649, 659, 859]
"""Logins that ended a connection for another reason than their own, or that a stop waited for."""
AT_THE_END_S = 300.0
"""Everything that is waited for has come by then, or its connection is closed."""


class History:
    def __init__(self, random: Random, *, any_form: bool, any_login: bool) -> None:
        """With `any_form`, clients may use TLS, and come with PROXY headers; with `any_login`, they use tokens, log in
        in several ways, and as others than before."""
        self.random = random
        self.gateway = WholeGateway(random)
        self.any_form, self.any_login = any_form, any_login
        self.tls_share = random.choice([0, 0.5, 1]) if any_form else 0
        self.contexts = contexts() if any_form else []
        self.clients: list[WholeClient] = []
        self.most_sent = 1 << 30

    async def run(self) -> None:
        await self.gateway.server.start()
        try:
            await self.happen()
        finally:
            for each in self.clients:
                each.leave()
            await self.gateway.end()
        await asyncio.sleep(1.0)
        self.check_nothing_is_left()

    async def happen(self) -> None:
        for _ in range(STEPS):
            self.step()
            await self.let_pass()
        for each in self.clients:
            each.reads = True
        for _ in range(12):
            self.most_sent = 1 << 30
            await self.let_pass(AT_THE_END_S / 12)
        for each in self.clients:
            each.check_at_the_end()

    def step(self) -> None:
        random, drawn = self.random, self.random.random()
        open_ = [each for each in self.clients if not each.left]
        if self.gateway.stopping is None and (not open_ or (drawn < 0.12 and len(open_) < MAX_CLIENTS)):
            self.connect()
        elif open_:
            self.step_of(random.choice(open_), drawn)

    def step_of(self, client: WholeClient, drawn: float) -> None:
        random = self.random
        if drawn < 0.22:
            client.log_in(right=random.random() < (0.6 if self.any_login and client.knows_login else 0.9))
        elif drawn < 0.7:
            for _ in range(random.choice([1, 1, 3, 8, 70])):
                client.ask(random.choice(APIS))
        elif drawn < 0.8:
            client.reads = not client.reads
        elif drawn < 0.83:
            client.half_close()
        elif drawn < 0.86:
            client.leave()
        elif drawn < 0.89:
            client.say_nonsense()
        elif drawn < 0.91:
            client.say_a_part()
        elif drawn < 0.92:
            self.gateway.stop()
        elif drawn < 0.95 and self.any_form:
            client.end.odd(random)
        else:
            self.most_sent = random.choice([1, 7, 1_000, 1 << 30])

    def connect(self) -> None:
        random = self.random
        form = self.some_form() if self.any_form else PLAIN
        logs_in, host = random.random() < 0.6, random.choice(HOSTS)
        way = some_way(random) if self.any_login else None
        client = WholeClient(self.gateway, random, logs_in=logs_in, host=host, form=form, way=way)
        self.clients.append(client)
        if random.random() < 0.8:
            client.log_in(right=random.random() < 0.95)

    def some_form(self) -> Form:
        random = self.random
        if random.random() < 0.1:
            self.contexts = [*map(renewed, self.contexts)]
        return some_form(random, random.choice(self.contexts) if random.random() < self.tls_share else None)

    async def let_pass(self, time_s: float | None = None) -> None:
        """Some turns of the event loop, or some time."""
        random = self.random
        for _ in range(random.choice([1, 2, 5]) if time_s is None else 40):
            for each in self.clients:
                each.flush(self.most_sent)
                if each.reads:
                    each.receive()
            pause_s = random.choice([0, 0, 0, 0.001, 0.02, 0.3, 1.5]) if time_s is None else time_s / 40
            await asyncio.sleep(pause_s)

    def check_nothing_is_left(self) -> None:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        self.gateway.check_nothing_is_left()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert loop.timers == []
        assert loop.failures == []


def run_history(seed: int, *, any_form: bool = False, any_login: bool = False) -> None:
    random = Random(seed)
    loop = VirtualLoop(random)
    with loop.as_the_clock(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_run(random, any_form=any_form, any_login=any_login))


async def _run(random: Random, *, any_form: bool, any_login: bool) -> None:
    await History(random, any_form=any_form, any_login=any_login).run()


def seeds(usual: list[int]) -> list[int]:
    chosen = os.environ.get("CONNECTION_SEEDS")
    if chosen is None:
        return usual
    first, _, end = chosen.partition(":")
    return [*range(int(first), int(end or int(first) + 1))]


@pytest.fixture(autouse=True)
def _hash_passwords_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "credential_of", cache(credential_of))


@pytest.mark.parametrize("seed", seeds([*range(80), *FOUND]))
def test_any_history(seed: int) -> None:
    run_history(seed)


@pytest.mark.parametrize("seed", seeds([*range(60)]))
def test_any_history_with_tls_and_proxies(seed: int) -> None:
    """Half-closed TLS, small records, new keys in between, and headers in pieces or of the wrong kind."""
    run_history(seed, any_form=True)


@pytest.mark.parametrize("seed", seeds([*range(80)]))
def test_any_history_of_logins(seed: int) -> None:
    """Tokens that expire soon, or while others are verified; logins without headers, and as another user."""
    run_history(seed, any_login=True)
