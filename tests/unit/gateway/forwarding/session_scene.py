"""A consumer with a fetch session (KIP-227) at a single address, and leaders that answer after a simple model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coordinator.fleet.messages import Member
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.codec import decode_request, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse
from tests.unit.gateway.forwarding.forwarding_scene import FakeLink

FETCH, VERSION, TOPIC = 1, 12, "t"
MOST_RECORDS = 3
"""In one answer, for each partition."""
_Topic = FetchRequest.FetchTopic
_Forgotten = FetchRequest.ForgottenTopic
_Answered = FetchResponse.FetchableTopicResponse


@dataclass
class Log:
    """One partition, at all its leaders."""

    leader: int | None
    end: int = 0

    def read(self, offset: int) -> bytes:
        return b"".join(b"%d;" % each for each in range(offset, min(self.end, offset + MOST_RECORDS)))


@dataclass
class LeaderSession:
    next_epoch: int
    offsets: dict[int, int]
    returned: dict[int, int] = field(default_factory=dict)
    """The end of the log as the client knows it."""


class Leader:
    """One gateway, as Kafka would answer."""

    def __init__(self, node_id: int, logs: dict[int, Log], random: Random) -> None:
        self.node_id = node_id
        self.sessions: dict[int, LeaderSession] = {}
        self._logs = logs
        self._random = random

    def answer(self, link: FakeLink, position: int) -> None:
        frame = memoryview(link.sent[position])
        request = decode_request(FetchRequest, VERSION, frame, parse_header(frame, flexible=True).body)
        link.answer(position, VERSION, self._respond(request))

    def _respond(self, request: FetchRequest) -> Any:
        named = {row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions}
        if request.session_epoch <= 0:
            self.sessions.pop(request.session_id, None)
            session = LeaderSession(1, named)
            number = 0 if request.session_epoch < 0 else self._random.randrange(1, 2**31)
            if number:
                self.sessions[number] = session
            return _response(number, [self._row(each, session) for each in named])
        known = self.sessions.get(request.session_id)
        if known is None:
            return _response(0, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != known.next_epoch:
            return _response(0, [], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        known.next_epoch += 1
        known.offsets |= named
        for topic in request.forgotten_topics_data:
            for each in topic.partitions:
                known.offsets.pop(each, None)
        rows = [self._row(each, known) for each in known.offsets if self._has_news(each, known)]
        return _response(request.session_id, rows)

    def _has_news(self, partition: int, session: LeaderSession) -> bool:
        log = self._logs[partition]
        is_changed = session.returned.get(partition) != log.end
        return log.leader != self.node_id or is_changed or bool(log.read(session.offsets[partition]))

    def _row(self, partition: int, session: LeaderSession) -> Any:
        log = self._logs[partition]
        if log.leader != self.node_id:
            session.returned.pop(partition, None)
            return _row(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, b"")
        session.returned[partition] = log.end
        return _row(partition, ErrorCode.NONE, log.end, log.read(session.offsets[partition]))


def _row(partition: int, code: ErrorCode, end: int, records: bytes) -> Any:
    return _Answered.PartitionData(
        partition_index=partition, error_code=code, high_watermark=end, last_stable_offset=end,
        log_start_offset=-1 if code else 0, aborted_transactions=None, preferred_read_replica=-1,
        records=RecordChunks((records,), len(records)),
    )  # fmt: skip


def _response(session_id: int, rows: list[Any], code: ErrorCode = ErrorCode.NONE) -> Any:
    return FetchResponse(
        throttle_time_ms=0, error_code=code, session_id=session_id,
        responses=[_Answered(topic=TOPIC, partitions=rows)] if rows else [],
    )  # fmt: skip


@dataclass
class Consumer:
    """Kafka's FetchSessionHandler, and the positions of a consumer."""

    positions: dict[int, int]
    """Of the partitions that are assigned now."""
    ends: dict[int, int] = field(default_factory=dict)
    session_id: int = 0
    next_epoch: int = 0
    in_session: dict[int, int] = field(default_factory=dict)

    def request(self) -> FetchRequest:
        is_full = self.next_epoch == 0
        changed = {
            each: offset
            for each, offset in self.positions.items()
            if is_full or self.in_session.get(each) != offset
        }
        forgotten = [] if is_full else [each for each in self.in_session if each not in self.positions]
        self.in_session = dict(self.positions)
        rows = [_Topic.FetchPartition(
            partition=each, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=1_000,
        ) for each, offset in changed.items()]  # fmt: skip
        return FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1_000_000, isolation_level=0, rack_id="",
            session_id=self.session_id, session_epoch=self.next_epoch,
            topics=[_Topic(topic=TOPIC, partitions=rows)] if rows else [],
            forgotten_topics_data=[_Forgotten(topic=TOPIC, partitions=forgotten)] if forgotten else [],
        )  # fmt: skip

    def take(self, response: Any) -> None:
        rows = {row.partition_index: row for topic in response.responses for row in topic.partitions}
        if response.error_code:
            assert not rows
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            else:
                assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            self.next_epoch = 0
            return
        if self.next_epoch == 0:
            assert rows.keys() == self.in_session.keys(), "a full response has each partition"
            self.session_id = response.session_id
        else:
            assert response.session_id == self.session_id
            assert rows.keys() <= self.in_session.keys(), "an incremental response has no others"
        self.next_epoch = self.next_epoch + 1 if self.session_id else 0
        for row in rows.values():
            self._take_row(row)

    def _take_row(self, row: Any) -> None:
        partition = row.partition_index
        if row.error_code:
            assert row.error_code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            return
        position = self.positions[partition]
        records = [int(each) for each in b"".join(row.records.chunks).split(b";")[:-1]] if row.records else []
        assert records == list(range(position, position + len(records))), "each record once, in order"
        self.positions[partition] = position + len(records)
        assert row.high_watermark >= self.positions[partition]
        assert row.high_watermark >= self.ends.get(partition, 0), "an end never goes back"
        self.ends[partition] = row.high_watermark


def restarted(member: Member, number: int) -> Member:
    return member.model_copy(update={"incarnation": f"{member.node_id}-{number}"})


async def let_run(turns: int = 5) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
