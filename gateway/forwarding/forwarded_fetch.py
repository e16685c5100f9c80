"""A fetch of partitions that several gateways lead: each gets a request for its own, and none delays the others' data.

The client's fetch is answered when the gateways together have returned enough, as a fetch from a single broker would
be. The requests to the other gateways stay in flight, and their later answers go into the client's next fetch. The
fetch session is kept here; the requests to the gateways have no session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from gateway.fan_out import sliced
from gateway.fetching.fetch_session import FetchedPartition, FetchSession
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.forwarding.asked_fetches import Ask, AskedFetches
from gateway.forwarding.large_waiting_fetch import LargeWaitingFetch
from gateway.forwarding.waiting_fetch import Part, WaitingFetch
from gateway.handlers.records.awaited_fetch import awaited, outdated
from gateway.handlers.records.fetch import ISOLATION_LEVELS, RESOLVED_AT_ONCE, fetch, with_requested
from gateway.handlers.records.fetch_rights import may_read
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.cluster import Unread
from gateway.requests.reply import Reply
from gateway.requests.routes import Leaders
from protocol.kafka.messages.records import FetchRequest


class ForwardedFetches:
    """One client's fetches."""

    def __init__(
        self, ask: Ask, unread: Unread, remembered: RememberedPartitions,
        led_here: Callable[[Call[FetchRequest], int], None],
    ) -> None:  # fmt: skip
        """`led_here` gets each fetch of partitions that this gateway led in this epoch of the fleet."""
        self._asked = AskedFetches(ask, unread, remembered)
        self._led_here = led_here

    def run(self, call: Call[FetchRequest], leaders: Leaders) -> Reply:
        if call.request.isolation_level not in ISOLATION_LEVELS:
            return call.api.handle(call)
        return with_requested(call, lambda fetched, session: Reply.after(self._start(call, leaders, fetched, session)))

    async def _start(
        self, call: Call[FetchRequest], leaders: Leaders, fetched: list[FetchedPartition], session: FetchSession | None
    ) -> Reply:
        while self._asked.waiting:  # one fetch at a time, as in Kafka
            await asyncio.wait([waiting.future for waiting in self._asked.waiting])
        parts, incarnations, epoch = [], set[str | None](), leaders.epoch
        async for each in sliced(fetched):
            name = await _name(call, each.topic)
            # This gateway itself refuses what the client may not read.
            is_asked = name is not None and may_read(call, name)
            leader = leaders.of_partition(name or "", each.partition) if is_asked else None
            incarnations.add(None if leader is None else leader.incarnation)
            parts.append(Part(each, leader, name))
        if incarnations <= {None}:
            self.forget()
            reply = fetch(call, fetched, session)
            self._led_here(call, epoch)
            return reply
        if session is not None and not session.is_at(call.request.session_epoch):
            return Reply(outdated(session))
        is_large = len(parts) > RESOLVED_AT_ONCE
        if is_large:
            await self._asked.forget_all_but_many(fetched)
        else:
            self._asked.forget_all_but(fetched)
        kind = LargeWaitingFetch if is_large else WaitingFetch
        waiting = kind(self._asked, call, parts, session, len(incarnations))
        self._asked.begin(waiting)
        waiting.start()
        return awaited(call, waiting, session, len(parts))

    def forget(self) -> None:
        """The client has disconnected, or one gateway answers its fetches: what is known here would be outdated when
        several do again, and answers that nobody fetches would count as unread until then."""
        self._asked.forget_all()


async def _name(call: Call[FetchRequest], topic: str | uuid.UUID | None) -> str | None:
    """None if there is no such topic; this gateway's handler then gives the answer."""
    if not isinstance(topic, uuid.UUID):
        return topic
    name = call.cluster.topics.cached_name(topic)
    if name is None:
        try:
            found = await call.cluster.topics.get_by_id(topic)
        except (PulsarError, TimeoutError):
            return None
        name = None if found is None else found.name
    return name
