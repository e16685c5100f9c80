"""The fast path of Fetch: requests that differ from an earlier one of their connection only in their partitions.

A consumer at the end of its partitions sends thousands of them, in a fetch session or without one. The bytes before the
partitions are compared, not decoded, and the response comes from memory (`tail_fetch`).

Any other request takes the general path (`fetch`); this path has changed nothing then. So both paths give the same
responses, and a test compares them. In particular, errors are left to the general path.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from gateway.fetching.fetch_session import FINAL_EPOCH, NO_SESSION, FetchedPartition, FetchSession
from gateway.handlers.place import Place
from gateway.handlers.records.fetch import (
    ISOLATION_LEVELS,
    RESOLVED_AT_ONCE,
    TOPIC_ID_VERSION,
    ZSTD_VERSION,
)
from gateway.handlers.records.fetch_rights import is_of_a_replica
from gateway.handlers.records.tail_fetch import MAX_TAILS, NotAtTail, TailFetch, Tails
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from protocol.kafka.codec import decode_request, is_flexible, parse_header
from protocol.kafka.handwritten.fetch_request import session_epoch_position
from protocol.kafka.handwritten.fetch_rows import AskedRow
from protocol.kafka.messages.records import FetchRequest

FIRST_VERSION = ZSTD_VERSION
"""Older versions may not read all topics."""
MAX_FRAME_BYTES = 16 * 1024
"""Larger requests take the general path: they have hundreds of partitions."""
LEARNED_FROM = 2
"""The first fetch of a connection is not remembered: many connections fetch once, and are then idle."""
_KEY_BYTES, _CORRELATED_BYTES, _EPOCH_BYTES = 4, 8, 4
"""The API's key and version; these and the correlation id; the session's epoch."""


class KnownFetches:
    """The last Fetch request of the frequent kind on one connection."""

    __slots__ = ("_fetches", "_known", "_waiting")

    def __init__(self) -> None:
        self._fetches = 0
        """The number of common requests that took the general path."""
        self._known: KnownFetch | None = None
        self._waiting: set[TailFetch] | None = None

    def learn(self, call: Call[FetchRequest]) -> None:
        """Remember the beginning of a decoded request, if it is of the frequent kind."""
        if call.frame is None or not _is_common(call) or (self._known is not None and self._known.begins(call.frame)):
            return
        self._fetches += 1
        if self._fetches < LEARNED_FROM:
            return
        start = call.frame[: session_epoch_position(call.frame, call.version)]
        if self._waiting is None:
            self._waiting = set()
        if call.context.meter is not None and call.context.meter.is_needed:  # a quota may have changed the request
            call = replace(call, request=_decoded(call.frame, call.version))
        if self._known is not None:
            self._known.close()
        self._known = KnownFetch(call, bytes(start), self._waiting)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request with the known beginning. Returns False if nothing was done."""
        if self._known is None or self._waiting:  # only connections of other gateways have two fetches in flight
            return False
        return self._known.handle(frame, context, place)

    def close(self) -> None:
        """The client has disconnected."""
        for fetch in tuple(self._waiting or ()):
            fetch.leave()
        if self._known is not None:
            self._known.close()


def _is_common(call: Call[FetchRequest]) -> bool:
    request = call.request
    if call.version < FIRST_VERSION or request.isolation_level not in ISOLATION_LEVELS or request.max_bytes <= 0:
        return False
    if is_of_a_replica(request):
        return False
    return request.session_epoch == FINAL_EPOCH if request.session_id == NO_SESSION else request.session_epoch > 0


def _decoded(frame: bytearray, version: int) -> FetchRequest:
    view = memoryview(frame)
    header = parse_header(view, flexible=is_flexible(FetchRequest, version))
    return decode_request(FetchRequest, version, view, header.body)


def _change(fetched: FetchedPartition, row: AskedRow) -> None:
    _, _, fetched.offset, fetched.max_bytes, fetched.leader_epoch, fetched.fetched_epoch = row


class KnownFetch:
    """The bytes before the session's epoch, and values derived from them."""

    __slots__ = (
        "_counted", "_key", "_known", "_owner", "_session_id", "_sessions", "_start", "_tails", "_topics",
        "_uses_topic_ids",
    )  # fmt: skip

    def __init__(self, call: Call[FetchRequest], start: bytes, waiting: set[TailFetch]) -> None:
        """`waiting` gets the fetches that wait."""
        self._key, self._start = start[:_KEY_BYTES], start[_CORRELATED_BYTES:]
        self._sessions, self._owner = call.cluster.fetch_sessions, call.client.host
        self._session_id = call.request.session_id
        self._uses_topic_ids = call.version >= TOPIC_ID_VERSION
        self._tails = Tails(call, waiting)
        self._topics: dict[bytes, str | uuid.UUID] = {}
        """By their names or ids in requests."""
        self._known: dict[tuple[bytes, int], FetchedPartition] = {}
        """The partitions of requests without a session, by topic and index."""
        self._counted = 0
        """The number of partitions that count for all connections."""

    def begins(self, frame: bytearray) -> bool:
        return frame.startswith(self._start, _CORRELATED_BYTES) and frame.startswith(self._key)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Returns False if nothing was done."""
        if len(frame) > MAX_FRAME_BYTES or not self.begins(frame):
            return False
        epoch_at = _CORRELATED_BYTES + len(self._start)
        rows = self._tails.rows.read(frame, epoch_at + _EPOCH_BYTES)
        if rows is None:
            return False
        epoch = int.from_bytes(frame[epoch_at : epoch_at + _EPOCH_BYTES], "big", signed=True)
        session = None if self._session_id == NO_SESSION else self._sessions.find(self._owner, self._session_id)
        try:
            partitions = self._alone(epoch, rows) if session is None else self._in_session(epoch, rows, session)
            TailFetch(self._tails, frame, context, place, partitions, session).start()
        except (NotAtTail, UnicodeDecodeError):
            return False
        finally:
            if self._tails.count + len(self._known) != self._counted:
                self._count()
        return True

    def close(self) -> None:
        """It is not used any more."""
        self._forget()
        self._count()

    def _count(self) -> None:
        self._counted = self._tails.count + len(self._known)
        self._tails.cluster.fetched_tails.keeps(self._forget_for_others, self._counted)

    def _forget_for_others(self) -> None:
        self._forget()
        self._counted = 0

    def _forget(self) -> None:
        """The next request finds its partitions again."""
        self._known.clear()
        self._topics.clear()
        self._tails.forget()

    def _in_session(self, epoch: int, rows: list[AskedRow], session: FetchSession) -> Collection[FetchedPartition]:
        """Its partitions, with the changes of the request; the general path may repeat these. Raises NotAtTail."""
        if epoch != session.epoch or self._uses_topic_ids != session.uses_topic_ids:
            raise NotAtTail
        if not 0 < len(session.partitions) <= RESOLVED_AT_ONCE:
            raise NotAtTail
        for row in rows:
            fetched = session.partitions.get((self._topic(row.topic), row.partition))
            if fetched is None:
                raise NotAtTail
            _change(fetched, row)
        return session.partitions.values()

    def _alone(self, epoch: int, rows: list[AskedRow]) -> Collection[FetchedPartition]:
        """The partitions of a request without a session. Raises NotAtTail."""
        if epoch != FINAL_EPOCH or self._session_id != NO_SESSION or not rows:
            raise NotAtTail
        asked: dict[tuple[bytes, int], FetchedPartition] = {}
        for row in rows:
            key = row.topic, row.partition
            fetched = self._known.get(key)
            if fetched is None:
                if len(self._known) >= MAX_TAILS:
                    self._known.clear()
                fetched = self._known[key] = FetchedPartition(self._topic(row.topic), *row[1:])
            else:
                _change(fetched, row)
            asked[key] = fetched
        return asked.values()

    def _topic(self, encoded: bytes) -> str | uuid.UUID:
        """Only names and ids of topics are remembered, not whatever a client names. Raises NotAtTail for others."""
        topic = self._topics.get(encoded)
        if topic is None:
            topic = self._tails.rows.topic(encoded)
            self._tails.known_topic(topic)
            if len(self._topics) >= MAX_TAILS:
                self._topics.clear()
            self._topics[encoded] = topic
        return topic
