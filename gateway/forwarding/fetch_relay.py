"""Fetches of partitions that one other gateway leads: they are forwarded unchanged, with their sessions (KIP-227).

A session that begins in this way stays with that leader. It ends when it names partitions of another leader, or
partitions that the client may no longer read: the client gets FETCH_SESSION_ID_NOT_FOUND, as from a restarted broker,
and sends a full fetch. A fetch that waited while permissions changed gets the same answer.

Where there are very many partitions, they are looked at in slices. The session does not change meanwhile: later fetches
of the client wait. The fleet may; then the leader is looked up again, by this fetch or, if the change comes later, by
the next one.

What is remembered of sessions has a bound for all clients. One that is forgotten has ended for its client, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.fleet.messages import Member
from gateway.errors import KafkaError
from gateway.fan_out import in_steps, sliced
from gateway.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.handlers.records.fetch import (
    ISOLATION_LEVELS,
    RESOLVED_AT_ONCE,
    SESSION_VERSION,
    TOPIC_ID_VERSION,
    forgotten_keys,
    names_many,
)
from gateway.handlers.records.fetch_rights import may_read
from gateway.requests.call import Call
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.routes import Leaders
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.fetch_request import set_session_id
from protocol.kafka.handwritten.fetch_response import session_id
from protocol.kafka.messages.records import FetchRequest

MANY_BYTES = 4 * RESOLVED_AT_ONCE
"""A smaller request does not name many partitions: each is a number at least."""

Named = dict[Key, str]
"""Partitions, with the names of their topics."""


@dataclass(slots=True)
class _Session:
    session_id: int
    leader: Member
    partitions: Named
    topics: frozenset[str]
    """The names of the topics of `partitions`."""
    epoch: int
    """The epoch of the fleet at which the leader was looked up."""


class FetchRelay:
    """The forwarded fetches of one client, which has at most one fetch in flight."""

    def __init__(self, remembered: RememberedPartitions) -> None:
        self._remembered = remembered
        self._closed = False
        self._session: _Session | None = None
        self._asked: Named = {}
        """The partitions of the full fetch in flight."""
        self._asked_topics: frozenset[str] = frozenset()
        self._asked_epoch = 0
        """The epoch of the fleet at which their leader was looked up."""

    def is_large(self, call: Call[FetchRequest], leaders: Leaders) -> bool:
        """Whether to call `leader_of_many`."""
        if call.frame is not None and len(call.frame) > MANY_BYTES and names_many(call.request):
            return True
        session = self._session
        if session is None or len(session.partitions) <= RESOLVED_AT_ONCE:
            return False
        return session.epoch != leaders.epoch or call.context.policy is not ALL_ALLOWED

    def leader(self, call: Call[FetchRequest], leaders: Leaders) -> Member | None:
        """The gateway that gets the fetch unchanged, or None. Raises KafkaError if the fetch session has ended."""
        if _is_full(call):
            named, leader = _named(call), None
            if named and _may_read_all(call, named.values()):
                leader = _sole_leader(leaders, named.items())
            return self._begin(call, leader, named or {}, frozenset((named or {}).values()), leaders.epoch)
        session = self._session_of(call)
        if session is None:
            return None
        if call.request.topics or call.request.forgotten_topics_data or session.epoch != leaders.epoch:
            self._change(call, leaders, session)
        if not _may_read_all(call, session.topics):
            self._end()
        return session.leader

    async def leader_of_many(self, call: Call[FetchRequest], leaders: Leaders) -> Member | None:
        """As `leader`, in slices."""
        if _is_full(call):
            named = await _named_of_many(call)
            topics = await _topics_of_many(named or {})
            leader, epoch = None, leaders.epoch
            if named and await _may_read_many(call, topics):
                leader, epoch = await _sole_leader_of_many(leaders, named)
            return self._begin(call, leader, named or {}, topics, epoch)
        session = self._session_of(call)
        if session is None:
            return None
        if call.request.topics or call.request.forgotten_topics_data or session.epoch != leaders.epoch:
            await self._change_many(call, leaders, session)
        if not await _may_read_many(call, session.topics):
            self._end()
        return session.leader

    def _session_of(self, call: Call[FetchRequest]) -> _Session | None:
        if call.request.isolation_level not in ISOLATION_LEVELS or self._session is None:
            return None
        if self._session.session_id != call.request.session_id:
            return None
        self._keep(self._session)
        return self._session

    def close(self) -> None:
        """The client has disconnected."""
        self._closed = True
        self._keep(None)

    def _keep(self, session: _Session | None) -> None:
        self._session = None if self._closed else session
        self._remembered.keeps(self._forget_for_others, 0 if self._session is None else len(self._session.partitions))

    def _forget_for_others(self) -> None:
        self._session = None

    def _begin(
        self, call: Call[FetchRequest], leader: Member | None, named: Named, topics: frozenset[str], epoch: int
    ) -> Member | None:
        """A full fetch ends the session before it."""
        if call.request.isolation_level not in ISOLATION_LEVELS:
            return None
        self._asked, self._asked_topics, self._asked_epoch = {}, frozenset(), epoch
        if leader is not None:  # otherwise nobody answers it as a whole, and it would be kept
            self._asked, self._asked_topics = named, topics
        known = self._session
        self._keep(None)
        if leader is not None and (known is None or known.session_id != call.request.session_id):
            call.cluster.fetch_sessions.close(call.client.host, call.request.session_id)
        if known is not None and leader is not None and known.leader.incarnation == leader.incarnation:
            _close_unnamed(call, known)
        return leader

    def _change(self, call: Call[FetchRequest], leaders: Leaders, session: _Session) -> None:
        named = _named(call)
        if named is None:
            self._end()
            return
        new = {key: topic for key, topic in named.items() if key not in session.partitions}
        session.partitions |= named
        for key in forgotten_keys(call):
            session.partitions.pop(key, None)
        session.topics = frozenset(session.partitions.values())
        self._keep(session)
        if session.epoch != leaders.epoch:
            session.epoch, new = leaders.epoch, session.partitions
        if new:
            self._check_leader(session, _sole_leader(leaders, new.items()))

    async def _change_many(self, call: Call[FetchRequest], leaders: Leaders, session: _Session) -> None:
        """As `_change`."""
        named = await _named_of_many(call)
        if named is None:
            self._end()
            return
        new: Named = {}
        async for key, topic in sliced(named.items()):
            if key not in session.partitions:
                new[key] = topic
            session.partitions[key] = topic
        by_id = call.version >= TOPIC_ID_VERSION
        async for forgotten in sliced(call.request.forgotten_topics_data):
            async for partition in sliced(forgotten.partitions):
                session.partitions.pop((forgotten.topic_id if by_id else forgotten.topic, partition), None)
        session.topics = await _topics_of_many(session.partitions)
        self._keep(session)
        looked_up = new if session.epoch == leaders.epoch else session.partitions
        if looked_up:
            leader, epoch = await _sole_leader_of_many(leaders, looked_up)
            if epoch != session.epoch and looked_up is new:  # the fleet has changed in between
                leader, epoch = await _sole_leader_of_many(leaders, session.partitions)
            session.epoch = epoch
            self._check_leader(session, leader)

    def _check_leader(self, session: _Session, leader: Member | None) -> None:
        if leader is None or leader.incarnation != session.leader.incarnation:
            self._end()

    def _end(self) -> None:
        self._keep(None)
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def answers_large(self, call: Call[FetchRequest]) -> bool:
        """Whether to call `answered_many`: the client may not read everything, so it is asked for each topic."""
        return call.context.policy is not ALL_ALLOWED and len(self._topics_of(call)) > RESOLVED_AT_ONCE

    def answered(self, call: Call[FetchRequest], leader: Member, frame: bytearray) -> None:
        """Remember a session that has begun, and forget one that has ended.

        Raises KafkaError if the client may no longer get the answer.
        """
        self._answered(call, leader, frame, may_read=_may_read_all(call, self._topics_of(call)))

    async def answered_many(self, call: Call[FetchRequest], leader: Member, frame: bytearray) -> None:
        """As `answered`, in slices."""
        self._answered(call, leader, frame, may_read=await _may_read_many(call, self._topics_of(call)))

    def _topics_of(self, call: Call[FetchRequest]) -> frozenset[str]:
        return self._session.topics if self._session is not None and not _is_full(call) else self._asked_topics

    def _answered(self, call: Call[FetchRequest], leader: Member, frame: bytearray, *, may_read: bool) -> None:
        named, topics = self._asked, self._asked_topics
        self._asked, self._asked_topics = {}, frozenset()
        was_forgotten = self._session is None and not _is_full(call)  # with the names of its topics
        if not may_read or was_forgotten:
            self._end()
        number = session_id(call.version, memoryview(frame))
        if number == NO_SESSION:
            self._keep(None)
        elif call.request.session_epoch == INITIAL_EPOCH:
            self._keep(_Session(number, leader, named, topics, self._asked_epoch))


def _is_full(call: Call[FetchRequest]) -> bool:
    return call.version < SESSION_VERSION or call.request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}


def _close_unnamed(call: Call[FetchRequest], session: _Session) -> None:
    """Let the leader close the session, although the client does not name it.

    A throttled client does not know the session that its discarded answer began.
    """
    if call.request.session_id == NO_SESSION and call.frame is not None:
        set_session_id(call.frame, call.version, session.session_id)


def _may_read_all(call: Call[FetchRequest], topics: Iterable[str]) -> bool:
    return call.context.policy is ALL_ALLOWED or all(may_read(call, topic) for topic in topics)


async def _may_read_many(call: Call[FetchRequest], topics: frozenset[str]) -> bool:
    if call.context.policy is ALL_ALLOWED:
        return True
    async for topic in sliced(topics):
        if not may_read(call, topic):
            return False
    return True


def _named(call: Call[FetchRequest]) -> Named | None:
    """The partitions of a request; None if the name for a topic id is not known."""
    found: Named = {}
    for topic in call.request.topics:
        if not _add_named(found, call, topic, topic.partitions):
            return None
    return found


async def _named_of_many(call: Call[FetchRequest]) -> Named | None:
    found: Named = {}
    async for topic in sliced(call.request.topics):
        async for some in in_steps(topic.partitions):
            if not _add_named(found, call, topic, some):
                return None
    return found


def _add_named(
    found: Named, call: Call[FetchRequest], topic: FetchRequest.FetchTopic,
    partitions: Sequence[FetchRequest.FetchTopic.FetchPartition],
) -> bool:  # fmt: skip
    by_id = call.version >= TOPIC_ID_VERSION
    name = call.cluster.topics.cached_name(topic.topic_id) if by_id else topic.topic
    if name is None:
        return False
    key: str | uuid.UUID | None = topic.topic_id if by_id else topic.topic
    for part in partitions:
        found[key, part.partition] = name
    return True


async def _topics_of_many(named: Named) -> frozenset[str]:
    return frozenset({name async for name in sliced(named.values())})


def _sole_leader(leaders: Leaders, named: Iterable[tuple[Key, str]], sole: Member | None = None) -> Member | None:
    """None if there are several leaders, or the leader is this gateway, or is not known."""
    for (_, partition), topic in named:
        leader = leaders.of_partition(topic, partition)
        if leader is None or (sole is not None and leader is not sole and leader != sole):
            return None
        sole = leader
    return sole


async def _sole_leader_of_many(leaders: Leaders, named: Named) -> tuple[Member | None, int]:
    """As `_sole_leader`, and the epoch of the fleet at which all of them were looked up."""
    while True:
        epoch, sole = leaders.epoch, None
        async for key, topic in sliced(named.items()):
            found = _sole_leader(leaders, [(key, topic)], sole)
            if found is None:
                return None, epoch
            sole = found
        if leaders.epoch == epoch:
            return sole, epoch
