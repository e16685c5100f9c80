"""Incremental fetch sessions (KIP-227): a consumer's partitions are kept here, so that requests name only changes."""

from __future__ import annotations

import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from gateway.errors import KafkaError
from gateway.fan_out import in_steps, sliced
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchResponse

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
NO_EPOCH = MAX_EPOCH + 1
"""No request has it: the epoch of a session that has ended, or is being changed in slices."""
PROTECT_S = 120.0
"""A session used within this time is not evicted for a new one (min.incremental.fetch.session.eviction.ms)."""
PARTITIONS_PER_SESSION = 250
"""The bound of the partitions of all sessions, for each possible session."""
PARTITION_BYTES = 300
"""What a partition takes, and as much for its name, which counts as further partitions if it is longer. No topic has
such a name, but a session keeps it, because each of its fetches is answered with the error."""
MAX_CHARACTER_BYTES = 4
"""Of a name that is not ASCII."""

Key = tuple[str | uuid.UUID | None, int]


class FetchedPartition:
    """One partition of a fetch: what was requested, and what was last answered."""

    __slots__ = (
        "answered_start",
        "answered_watermark",
        "fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str | uuid.UUID | None,
        partition: int,
        offset: int,
        max_bytes: int,
        leader_epoch: int,
        fetched_epoch: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.fetched_epoch = fetched_epoch
        self.forget_answered()

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """The number of partitions that it counts as, which never changes."""
        if not isinstance(self.topic, str):
            return 1
        return 1 + len(self.topic) * (1 if self.topic.isascii() else MAX_CHARACTER_BYTES) // PARTITION_BYTES

    def forget_answered(self) -> None:
        """The next answer then contains the partition, although it may have no news."""
        self.answered_watermark = self.answered_start = -2

    def has_news(self, high_watermark: int, log_start: int) -> bool:
        """Whether the client knows other offsets."""
        return self.answered_watermark != high_watermark or self.answered_start != log_start

    def update(self, other: FetchedPartition) -> None:
        self.offset, self.max_bytes = other.offset, other.max_bytes
        self.leader_epoch, self.fetched_epoch = other.leader_epoch, other.fetched_epoch


class InFlight(Protocol):
    """A fetch that is not answered yet."""

    def end(self) -> None:
        """Answer it: its session has moved on, or has ended, so nothing waits for its records. Not in this call."""


class FetchSession:
    __slots__ = ("epoch", "in_flight", "owner", "partitions", "session_id", "size", "used_at", "uses_topic_ids")

    def __init__(
        self, session_id: int, owner: str, partitions: Iterable[FetchedPartition], *, uses_topic_ids: bool
    ) -> None:
        self.session_id = session_id
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        """Its requests name topics by their ids; otherwise, by their names (KIP-516)."""
        self.epoch = 1
        self.partitions: dict[Key, FetchedPartition] = {(part.topic, part.partition): part for part in partitions}
        """In the order in which they are served. To iterate over an OrderedDict would compute the hash of each key."""
        self.size = sum([part.size for part in self.partitions.values()])
        """The number of partitions that it counts as."""
        self.used_at = time.monotonic()
        self.in_flight: InFlight | None = None
        """Its newest fetch, while it is not answered. There is no other one: each holds memory for all partitions."""

    def change(self, changed: Iterable[FetchedPartition], forgotten: Iterable[Key]) -> None:
        for part in changed:
            known = self.partitions.get(part.key)
            if known is None:
                self.partitions[part.key] = part
                self.size += part.size
            else:
                known.update(part)
        for key in forgotten:
            known = self.partitions.pop(key, None)
            if known is not None:
                self.size -= known.size

    def is_at(self, request_epoch: int) -> bool:
        """Whether the request with this epoch is the last one of the session. Another connection may have sent more."""
        return self.epoch == _after(request_epoch)

    def answers(
        self, fetched: FetchedPartition, high_watermark: int, log_start: int, *, has_records: bool,
        is_special: bool = False,
    ) -> bool:  # fmt: skip
        """Whether an incremental answer contains the partition. If so, the session remembers it.

        `is_special`: the answer has something else that is neither records nor an offset, such as an error.
        """
        if not has_records and not is_special and not fetched.has_news(high_watermark, log_start):
            return False
        fetched.answered_watermark, fetched.answered_start = high_watermark, log_start
        key = fetched.key
        if has_records and key in self.partitions:  # others have their turn before it
            self.partitions[key] = self.partitions.pop(key)
        return True


class AnsweredPartition(Protocol):
    """A row of an answer."""

    fetched: FetchedPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    preferred_read_replica: int
    diverging_epoch: FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset | None
    records: RecordChunks


def names_all(session: FetchSession | None, session_epoch: int) -> bool:
    """A sessionless or first answer contains every partition, an incremental one only changed partitions."""
    return session is None or session_epoch == INITIAL_EPOCH


def record_if_changed(session: FetchSession | None, session_epoch: int, row: AnsweredPartition) -> bool:
    """Whether the row belongs into the answer. If so, the session remembers it."""
    if session is None:
        return True
    if session_epoch == INITIAL_EPOCH:
        row.fetched.answered_watermark, row.fetched.answered_start = row.high_watermark, row.log_start_offset
        return True
    is_special = row.error_code != 0 or row.preferred_read_replica >= 0 or row.diverging_epoch is not None
    return session.answers(
        row.fetched, row.high_watermark, row.log_start_offset, has_records=row.records.size_bytes > 0,
        is_special=is_special,
    )  # fmt: skip


class FetchSessions:
    """The sessions of all clients. Their number is bounded, and the number of their partitions, in all sessions
    together. A client without a session sends full requests.

    A session belongs to an owner, the client's host: a new connection of the client can continue it, and other hosts
    cannot use it.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_sessions * PARTITIONS_PER_SESSION
        self._partitions = 0
        """The sum of the sessions' sizes."""
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def create(
        self, owner: str, partitions: Iterable[FetchedPartition], *, uses_topic_ids: bool
    ) -> FetchSession | None:
        """None if there is no room: the answer then has session id 0."""
        session = FetchSession(self._new_id(), owner, partitions, uses_topic_ids=uses_topic_ids)
        return session if self._add(session) else None

    async def create_large(
        self, owner: str, partitions: dict[Key, FetchedPartition], *, uses_topic_ids: bool
    ) -> FetchSession | None:
        """As `create`, in slices. The session keeps the dict."""
        size = 0
        async for part in sliced(partitions.values()):
            size += part.size
        session = FetchSession(self._new_id(), owner, (), uses_topic_ids=uses_topic_ids)
        session.partitions, session.size = partitions, size
        return session if self._add(session) else None

    def _new_id(self) -> int:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = secrets.randbits(31)
        return session_id

    def _add(self, session: FetchSession) -> bool:
        """False if there is no room."""
        if not self._make_room(session.size):
            return False
        self._sessions[session.session_id] = session
        self._partitions += session.size
        return True

    def _make_room(self, partitions: int) -> bool:
        """Evict the sessions that were not used for the longest time. Returns whether there is room now."""
        if partitions > self._max_partitions:
            return False
        while len(self._sessions) >= self._max_sessions or self._partitions + partitions > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or time.monotonic() - oldest.used_at < PROTECT_S:
                return False
            self._end(oldest)
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._partitions -= session.size

    def find(self, owner: str, session_id: int) -> FetchSession | None:
        """The session, if it is the owner's."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def close(self, owner: str, session_id: int) -> None:
        session = self.find(owner, session_id)
        if session is not None:
            self._end(session)

    def _end(self, session: FetchSession) -> None:
        if self._sessions.get(session.session_id) is session:
            self._remove(session)
        session.epoch = NO_EPOCH
        if session.in_flight is not None:
            session.in_flight.end()

    def resume(
        self, owner: str, session_id: int, epoch: int, changed: Iterable[FetchedPartition], forgotten: Iterable[Key],
        *, uses_topic_ids: bool,
    ) -> FetchSession | None:  # fmt: skip
        """The session with its changes. Without partitions it is closed, and the result is None.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, also if there is no room for more partitions: the client then
        sends a full request. Raises INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._at(owner, session_id, epoch, uses_topic_ids=uses_topic_ids)
        self._change(session, changed, forgotten)
        return self._changed(session, epoch)

    async def resume_large(
        self, owner: str, session_id: int, epoch: int, changed: Sequence[FetchedPartition],
        forgotten: Iterable[tuple[str | uuid.UUID | None, Sequence[int]]], *, uses_topic_ids: bool,
    ) -> FetchSession | None:  # fmt: skip
        """As `resume`, in slices. `forgotten`: partitions by topic.

        Other requests of the session are refused meanwhile: its client knows no epoch that comes after this one. It may
        be closed, or evicted. If the client disconnects it ends, because it is half changed.
        """
        session = self._at(owner, session_id, epoch, uses_topic_ids=uses_topic_ids)
        self.used(session)
        session.epoch = NO_EPOCH
        try:
            async for some in in_steps(changed):
                self._change(session, some, ())
            async for topic, partitions in sliced(forgotten):
                async for numbers in in_steps(partitions):
                    self._change(session, (), [(topic, number) for number in numbers])
        except BaseException:
            self._end(session)
            raise
        if self.find(owner, session_id) is not session:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return self._changed(session, epoch)

    def _at(self, owner: str, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        session = self.find(owner, session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:  # a client that has lost its metadata knows only names
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _change(self, session: FetchSession, changed: Iterable[FetchedPartition], forgotten: Iterable[Key]) -> None:
        before = session.size
        session.change(changed, forgotten)
        if self._sessions.get(session.session_id) is session:
            self._partitions += session.size - before

    def _changed(self, session: FetchSession, epoch: int) -> FetchSession | None:
        if not session.partitions:
            self._end(session)
            return None
        if self._partitions > self._max_partitions:
            self._remove(session)  # it makes no room for itself
            if not self._add(session):
                self._end(session)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = epoch
        self.used(session)
        return session

    def used(self, session: FetchSession) -> None:
        """A request has used the session: it has the next epoch. The one before it ends."""
        session.epoch = _after(session.epoch)
        if session.in_flight is not None:
            session.in_flight.end()
        session.used_at = time.monotonic()
        self._sessions.move_to_end(session.session_id)


def _after(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1
