"""Fetches of partitions that one other gateway leads: they are forwarded unchanged, with their sessions (KIP-227).

A session that begins in this way stays with that leader. It ends when it names partitions of another leader, or
partitions that the client may no longer read: the client gets FETCH_SESSION_ID_NOT_FOUND, as from a restarted broker,
and sends a full fetch. A fetch that waited while permissions changed gets the same answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator.fleet.messages import Member
from gateway.errors import KafkaError
from gateway.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key
from gateway.handlers.records.fetch import (
    ISOLATION_LEVELS,
    SESSION_VERSION,
    TOPIC_ID_VERSION,
    forgotten_keys,
    may_read,
)
from gateway.requests.call import Call
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.routes import Leaders
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.fetch_request import set_session_id
from protocol.kafka.handwritten.fetch_response import session_id
from protocol.kafka.messages.records import FetchRequest

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

    def __init__(self) -> None:
        self._session: _Session | None = None
        self._asked: Named = {}
        """The partitions of the full fetch in flight."""

    def leader(self, call: Call[FetchRequest], leaders: Leaders) -> Member | None:
        """The gateway that gets the fetch unchanged, or None. Raises KafkaError if the fetch session has ended."""
        request = call.request
        if request.isolation_level not in ISOLATION_LEVELS:
            return None
        if call.version < SESSION_VERSION or request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            return self._leader_of_all(call, leaders)
        if self._session is None or self._session.session_id != request.session_id:
            return None
        return self._leader_of_session(call, leaders, self._session)

    def _leader_of_all(self, call: Call[FetchRequest], leaders: Leaders) -> Member | None:
        """A full fetch ends the session before it."""
        named, leader = _named(call), None
        if named and may_read_all(call, named.values()):
            leader = _sole_leader(leaders, named)
        self._asked = named or {}
        known, self._session = self._session, None
        if leader is not None and (known is None or known.session_id != call.request.session_id):
            call.cluster.fetch_sessions.close(call.client.host, call.request.session_id)
        if known is not None and leader is not None and known.leader.incarnation == leader.incarnation:
            _close_unnamed(call, known)
        return leader

    def _leader_of_session(self, call: Call[FetchRequest], leaders: Leaders, session: _Session) -> Member:
        if call.request.topics or call.request.forgotten_topics_data or session.epoch != leaders.epoch:
            self._change(call, leaders, session)
        if not may_read_all(call, session.topics):
            self._end()
        return session.leader

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
        if session.epoch != leaders.epoch:
            session.epoch, new = leaders.epoch, session.partitions
        if new:
            leader = _sole_leader(leaders, new)
            if leader is None or leader.incarnation != session.leader.incarnation:
                self._end()

    def _end(self) -> None:
        self._session = None
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def answered(self, call: Call[FetchRequest], leaders: Leaders, leader: Member, frame: bytearray) -> None:
        """Remember a session that has begun, and forget one that has ended.

        Raises KafkaError if the client may no longer get the answer.
        """
        is_full = call.version < SESSION_VERSION or call.request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}
        named, self._asked = self._asked, {}
        topics = self._session.topics if self._session is not None and not is_full else frozenset(named.values())
        if not may_read_all(call, topics):
            self._end()
        number = session_id(call.version, memoryview(frame))
        if number == NO_SESSION:
            self._session = None
        elif call.request.session_epoch == INITIAL_EPOCH:
            self._session = _Session(number, leader, named, topics, leaders.epoch)


def _close_unnamed(call: Call[FetchRequest], session: _Session) -> None:
    """Let the leader close the session, although the client does not name it.

    A throttled client does not know the session that its discarded answer began.
    """
    if call.request.session_id == NO_SESSION and call.frame is not None:
        set_session_id(call.frame, call.version, session.session_id)


def may_read_all(call: Call[FetchRequest], topics: Iterable[str]) -> bool:
    return call.context.policy is ALL_ALLOWED or all(may_read(call, topic) for topic in topics)


def _named(call: Call[FetchRequest]) -> Named | None:
    """The partitions of a request; None if the name for a topic id is not known."""
    by_id = call.version >= TOPIC_ID_VERSION
    found: Named = {}
    for topic in call.request.topics:
        name = call.cluster.topics.cached_name(topic.topic_id) if by_id else topic.topic
        if name is None:
            return None
        key: str | uuid.UUID | None = topic.topic_id if by_id else topic.topic
        for part in topic.partitions:
            found[key, part.partition] = name
    return found


def _sole_leader(leaders: Leaders, named: Mapping[Key, str]) -> Member | None:
    """None if there are several leaders, or the leader is this gateway, or is not known."""
    sole: Member | None = None
    for (_, partition), topic in named.items():
        leader = leaders.of_partition(topic, partition)
        if leader is None or (sole is not None and leader != sole):
            return None
        sole = leader
    return sole
