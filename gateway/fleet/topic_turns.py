"""Changes of one topic take turns in the whole fleet, in the order in which its log has the gateways' requests.

Kafka's controller makes all changes one after the other. Pulsar has no such place: of two requests that change a topic,
each is judged by what was there before both. A turn ends with its gateway, too.

A gateway without others begins at once, and writes nothing. When another one joins, it writes which changes it has
begun before it announces that it has acted on that, and the other one asks for no turn before.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.fleet.membership import Membership
from coordinator.fleet.messages import TopicTurn, TopicTurnEnd, Turn
from gateway.fleet.fleet_log import SEND_AGAIN_S, FleetLog
from gateway.pulsar.errors import RequestTimeoutError

TURN_S = 20.0
"""How long a change waits for others. Its client waits longer."""
CHECK_S = 0.005
"""How often the log is looked at for changes that have begun."""


class _Asked:
    """A change of this gateway that waits, or has its turn."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent_s = -math.inf
        self.begun = asyncio.Event()
        self.was_read = False
        """The request was in the log."""


class TopicTurns:
    """The turns of this gateway."""

    def __init__(self, membership: Membership, log: FleetLog) -> None:
        self._membership = membership
        self._log = log
        self._asked: dict[str, _Asked] = {}
        """By request id."""
        self._ends_sent_s: dict[str, float] = {}
        """When the ends were sent of turns that are still in the log, by request id."""

    @asynccontextmanager
    async def turn(self, topic: str) -> AsyncIterator[None]:
        """No other gateway changes the topic meanwhile. Raises RequestTimeoutError if others do so for too long."""
        request_id, asked = str(uuid.uuid4()), _Asked(topic)
        if self._is_alone():
            asked.begun.set()
        self._asked[request_id] = asked
        try:
            self.send_due()
            await _begun(asked)
            yield
        finally:
            del self._asked[request_id]
            self.send_due()

    def _is_alone(self) -> bool:
        own = self._membership.member.incarnation
        return all(state.member.incarnation == own for state in self._membership.roster.members.values())

    async def wait_until_logged(self) -> None:
        """Return when the log has all changes that this gateway has begun, if there are others."""
        while self._membership.is_known_to_all and not self._is_alone() and self._begun_unlogged():
            await asyncio.sleep(CHECK_S)

    def _begun_unlogged(self) -> bool:
        return any(asked.begun.is_set() and not asked.was_read for asked in self._asked.values())

    def update(self) -> None:
        """The turns or the members have changed in the log."""
        for of_topic in self._membership.roster.turns.values():
            for number, turn in enumerate(of_topic):
                asked = self._asked.get(turn.request_id)
                if asked is not None:
                    asked.was_read = True
                    if number == 0:
                        asked.begun.set()
        self.send_due()

    def send_due(self) -> None:
        """Requests that are not in the log, and ends of turns that are: also of those that were given up before."""
        if not self._log.writable:
            return
        turns = {turn.request_id: turn for of_topic in self._membership.roster.turns.values() for turn in of_topic}
        now_s = asyncio.get_running_loop().time()
        if self._membership.is_known_to_all:
            self._send_requests(turns, now_s)
        self._send_ends(turns, now_s)

    def _send_requests(self, turns: dict[str, Turn], now_s: float) -> None:
        own, is_alone = self._membership.member.incarnation, self._is_alone()
        for request_id, asked in self._asked.items():
            is_known = request_id in turns or (asked.begun.is_set() and (asked.was_read or is_alone))
            if not is_known and now_s - asked.sent_s >= SEND_AGAIN_S:
                asked.sent_s = now_s
                self._log.send(TopicTurn(topic=asked.topic, request_id=request_id, incarnation=own))

    def _send_ends(self, turns: dict[str, Turn], now_s: float) -> None:
        own = self._membership.member.incarnation
        over = {key: turn for key, turn in turns.items() if turn.incarnation == own and key not in self._asked}
        self._ends_sent_s = {key: sent_s for key, sent_s in self._ends_sent_s.items() if key in over}
        for key, turn in over.items():
            if now_s - self._ends_sent_s.get(key, -math.inf) >= SEND_AGAIN_S:
                self._ends_sent_s[key] = now_s
                self._log.send(TopicTurnEnd(topic=turn.topic, request_id=key))


async def _begun(asked: _Asked) -> None:
    try:
        async with asyncio.timeout(TURN_S):
            await asked.begun.wait()
    except TimeoutError:
        raise RequestTimeoutError(f"other gateways are changing topic {asked.topic}") from None
