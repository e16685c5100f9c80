"""Fetches of what one other gateway leads: they go there as they are, and their sessions (KIP-227) with them.

A session that begins so stays with that leader. When it comes to name what another one leads, it is at its end: the
client hears that it is unknown, as from a broker that was restarted, and asks for everything anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from coordinator.fleet.messages import Member
from gateway.errors import KafkaError
from gateway.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key
from gateway.handlers.records.fetch import ISOLATION_LEVELS, SESSION_VERSION, TOPIC_ID_VERSION, forgotten_keys
from gateway.requests.call import Call
from gateway.requests.routes import Leaders
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.fetch_response import session_id
from protocol.kafka.messages.records import FetchRequest


@dataclass(slots=True)
class _Session:
    session_id: int
    leader: Member
    partitions: set[Key]
    epoch: int
    """When their leader was looked up."""


class FetchRelay:
    """Of one client."""

    def __init__(self) -> None:
        self._session: _Session | None = None

    def leader(self, call: Call[FetchRequest], leaders: Leaders) -> Member | None:
        """To whom the fetch goes as it is; None if it does not. Raises KafkaError when its session has ended."""
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
        leader = _sole_leader(call, leaders, _keys(call))
        known, self._session = self._session, None
        if leader is not None and (known is None or known.session_id != call.request.session_id):
            call.cluster.fetch_sessions.close(call.client.host, call.request.session_id)
        return leader

    def _leader_of_session(self, call: Call[FetchRequest], leaders: Leaders, session: _Session) -> Member:
        named, forgotten = _keys(call), set(forgotten_keys(call))
        new = named - session.partitions
        session.partitions = (session.partitions | named) - forgotten
        if session.epoch != leaders.epoch:
            session.epoch, new = leaders.epoch, session.partitions
        if new:
            leader = _sole_leader(call, leaders, new)
            if leader is None or leader.incarnation != session.leader.incarnation:
                self._session = None
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session.leader

    def answered(self, call: Call[FetchRequest], leaders: Leaders, leader: Member, frame: bytearray) -> None:
        """A session may have begun."""
        if call.version < SESSION_VERSION or call.request.session_epoch != INITIAL_EPOCH:
            return
        number = session_id(call.version, memoryview(frame))
        if number != NO_SESSION:
            self._session = _Session(number, leader, _keys(call), leaders.epoch)


def _keys(call: Call[FetchRequest]) -> set[Key]:
    by_id = call.version >= TOPIC_ID_VERSION
    return {
        (topic.topic_id if by_id else topic.topic, part.partition)
        for topic in call.request.topics
        for part in topic.partitions
    }


def _sole_leader(call: Call[FetchRequest], leaders: Leaders, keys: Collection[Key]) -> Member | None:
    """None if there are several, or it is this gateway, or not known."""
    found: set[Member | None] = set()
    for topic, partition in keys:
        name = call.cluster.topics.cached_name(topic) if isinstance(topic, uuid.UUID) else topic
        found.add(None if name is None else leaders.of_partition(name, partition))
    return found.pop() if len(found) == 1 else None
