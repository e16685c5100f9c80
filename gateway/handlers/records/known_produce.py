"""The fast path of Produce: requests that differ from an earlier one of their connection only in their batch.

A producer sends thousands of them: one topic, one partition, one batch. The bytes before the batch are compared, not
decoded. The batch is checked and appended, and its answer is encoded in one step.

Any other request takes the general path (`produce`); this path has done nothing then. So both paths give the same
answers, and a test compares them. In particular, no error is determined here.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from coordinator.fleet.leadership import PartitionRole
from gateway.errors import KafkaError
from gateway.handlers.place import LaterPlace, Place
from gateway.handlers.records.produce import ANSWERED_BY_THEN_S
from gateway.handlers.records.produce_answers import NO_TIMESTAMP, PartitionAnswer, refused_response, written_response
from gateway.log.partition_log import PartitionLog
from gateway.log.writing.checking import Produced, check_common, takes_as_sent
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from gateway.requests.policy import ALL_ALLOWED, Policy
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.batch import TRANSACTIONAL_MASK, BatchHeader
from protocol.kafka.handwritten.produce_request import (
    ProducedPartition,
    ProducedTopic,
    single_batch,
    single_batch_start,
)
from protocol.kafka.handwritten.produce_response import WrittenRow
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse

MAX_KNOWN, MAX_START_BYTES = 100, 400
"""Bounds for one connection: at most about 300 KB, and 3 KB for a producer that writes to one partition."""
MAX_LENGTHS = 8
"""Different lengths of the bytes before the batch: each is tried."""
FIRST_VERSION = 5
"""Older answers have no log start offset."""
_TopicResponse = ProduceResponse.TopicProduceResponse
_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
"""Reading the attribute of an enum is slow."""
HEADER = struct.Struct(">hhi")
_PATIENT_MS = int(1000 * ANSWERED_BY_THEN_S)
"""A request with this timeout, or a longer one, needs no timer."""


class RepeatedProduce(Protocol):
    """A request that may come again with other batches."""

    start: bytes
    """The bytes between its correlation id and the batch."""

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle such a request. False: nothing was done."""


Kind = Callable[[Call[ProduceRequest], bytes], RepeatedProduce]
"""Creates what handles the requests that begin like a call, by the call and its beginning."""


class KnownProduces:
    """The beginnings, before their batches, of the requests of one connection."""

    def __init__(self, kind_of: Callable[[Call[ProduceRequest]], Kind | None] | None = None) -> None:
        """`kind_of` chooses what handles the requests with the beginning of a call: None if it needs the general path.
        By default they are appended."""
        self._kind_of = kind_of or appended_kind
        self._known: dict[bytes, RepeatedProduce] = {}
        self._lengths: list[int] = []
        """The lengths of the keys of `_known`."""
        self._last: RepeatedProduce | None = None

    def learn(self, call: Call[ProduceRequest]) -> None:
        """Remember the beginning of a decoded request, if it is a common one."""
        kind = None if call.frame is None or not _is_common(call) else self._kind_of(call)
        if kind is None or call.frame is None:
            return
        start = single_batch_start(call.version, call.client_id, call.request)
        if len(start) > MAX_START_BYTES or not call.frame.startswith(start, HEADER.size):
            return
        if len(self._known) >= MAX_KNOWN or len(self._lengths) >= MAX_LENGTHS:
            self._known.clear()
            self._lengths.clear()
        if len(start) not in self._lengths:
            self._lengths.append(len(start))
        self._known[start] = self._last = kind(call, start)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request with a known beginning. False: nothing was done."""
        known = self._last
        if known is not None and not frame.startswith(known.start, HEADER.size):
            known = self._find(frame)
        if known is None:
            return False
        self._last = known
        return known.handle(frame, context, place)

    def close(self) -> None:
        """Nothing waits here."""

    def _find(self, frame: bytearray) -> RepeatedProduce | None:
        view = memoryview(frame)
        for length in self._lengths:
            known = self._known.get(bytes(view[HEADER.size : HEADER.size + length]))
            if known is not None:
                return known
        return None


def _is_common(call: Call[ProduceRequest]) -> bool:
    request = call.request
    if call.version < FIRST_VERSION or request.acks not in {-1, 1} or request.timeout_ms < _PATIENT_MS:
        return False
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return False
    return request.topic_data[0].name not in INTERNAL_TOPICS


def with_records(request: ProduceRequest, records: memoryview | None) -> ProduceRequest:
    """The same request of one batch with another batch."""
    [topic] = request.topic_data
    rows = [ProducedPartition(index=topic.partition_data[0].index, records=records)]
    topics = [ProducedTopic(name=topic.name, topic_id=topic.topic_id, partition_data=rows)]
    return ProduceRequest(
        transactional_id=request.transactional_id, acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics
    )


def written_row(call: Call[ProduceRequest]) -> WrittenRow:
    """The answers to such requests, if the batch was written."""
    [topic] = call.request.topic_data
    rows: list[_TopicResponse.PartitionProduceResponse] = [PartitionAnswer(topic.partition_data[0].index)]
    return WrittenRow(
        call.version, _TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
    )


def appended_kind(call: Call[ProduceRequest]) -> Kind | None:
    """For a partition that this gateway leads."""
    topic = call.cluster.topics.cached(call.request.topic_data[0].name)
    return KnownProduce if topic is not None and takes_as_sent(topic) else None


class KnownProduce:
    """The bytes before the batch, and what follows from them until the topic changes."""

    def __init__(self, call: Call[ProduceRequest], start: bytes) -> None:
        [topic] = call.request.topic_data
        [partition] = topic.partition_data
        self.start = start
        self.call = call.asking(with_records(call.request, None))
        self.name, self.index = topic.name, partition.index
        """The partition's topic and index."""
        self.row = written_row(call)
        self.charges = None if call.context.meter is None else call.context.meter.repeated(call)
        self.metrics = call.cluster.metrics.request(call.api.name, call.version)
        self._client, self._cluster = call.client, call.cluster
        self._key = (call.api.key, call.version)
        self._topic_id = topic.topic_id
        self._transactional = call.request.transactional_id is not None
        self._batch_at = HEADER.size + len(start)
        self.topic: Topic | None = None
        """The topic as it was at the last check."""
        self._max_bytes = 0
        """The maximum size of a batch; 0 while batches need the general path."""
        self._allowing: Policy | None = None
        """The policy that allows it, in its version `_allowed_at`."""
        self._allowed_at = 0

    def _look_at(self, topic: Topic) -> None:
        """The topic has changed."""
        self.topic, self._max_bytes = topic, 0
        same = self._topic_id is None or self._topic_id == topic.topic_id
        if same and self.index < topic.partitions and takes_as_sent(topic):
            self._max_bytes = int(topic.config("max.message.bytes"))

    def handle(self, frame: bytearray, context: RequestContext, place: LaterPlace) -> bool:
        """False: nothing was done."""
        started = time.perf_counter()
        api_key, version, correlation_id = HEADER.unpack_from(frame)
        if (api_key, version) != self._key or not self._is_open_to(context):
            return False
        log = self._cluster.logs.find(self.name, self.index)
        data = single_batch(version, frame, self._batch_at)
        header = None if data is None else check_common(data, version, self._max_bytes)
        if log is None or data is None or header is None or not self._may_append(header, log):
            return False
        batch = _Batch(self, place, correlation_id, log, data, header, frame, started)
        try:
            repeats = log.append(data, header, self._client.number, batch.done)
        except KafkaError:
            return False
        batch.busy_s = time.perf_counter() - started
        if repeats:
            batch.time_ms = header.max_timestamp
        if batch.outcome is not None:
            batch.done(*batch.outcome)
        return True

    def _is_open_to(self, context: RequestContext) -> bool:
        """The client may write to the partition, this gateway leads it, and its batches are stored as sent."""
        topic = self._cluster.topics.cached(self.name)
        if topic is None:
            return False
        if topic is not self.topic:
            self._look_at(topic)
        if not self._max_bytes or not self._cluster.fleet.leads(self.name, self.index):
            return False
        policy = context.policy
        if policy is ALL_ALLOWED or (policy is self._allowing and policy.version() == self._allowed_at):
            return True
        return self._is_allowed_by(policy)

    def _is_allowed_by(self, policy: Policy) -> bool:
        """Remembers that it is, which is quicker to find out than the policy's own answer."""
        version = policy.version()
        if self._transactional or not policy.allows(_WRITE, _TOPIC, self.name):
            return False
        self._allowing, self._allowed_at = policy, version
        return True

    def _may_append(self, header: BatchHeader, log: PartitionLog) -> bool:
        """The batch can be appended without waiting for anything."""
        client = self._client
        if header.producer_id >= 0 or header.attributes & TRANSACTIONAL_MASK:
            role = self._cluster.fleet.role(self.name, self.index)
            if role is not PartitionRole.LEADING or client.refused or self._transactional < header.is_transactional:
                return False
        return log.ready_for(header, client.number, client.arrived_s)


class _Batch:
    """A batch in flight."""

    __slots__ = (
        "_correlation_id", "_data", "_frame", "_header", "_known", "_log", "_place", "_started", "busy_s", "outcome",
        "time_ms",
    )  # fmt: skip

    def __init__(
        self, known: KnownProduce, place: LaterPlace, correlation_id: int, log: PartitionLog, data: memoryview,
        header: BatchHeader, frame: bytearray, started: float,
    ) -> None:  # fmt: skip
        self._known = known
        self._place = place
        self._correlation_id = correlation_id
        self._log = log
        self._data = data
        self._header = header
        self._frame = frame
        self._started = started
        self.busy_s: float | None = None
        """None while the batch is being appended."""
        self.time_ms = NO_TIMESTAMP
        """Of a repeated batch: Kafka returns the time at which it was first written."""
        self.outcome: tuple[int, Exception | None] | None = None
        """Set if the outcome is known while the batch is being appended."""

    def done(self, base_offset: int, error: Exception | None) -> None:
        if self.busy_s is None:
            self.outcome = base_offset, error
            return
        if error is not None:
            self._refuse(error)
            return
        known, start = self._known, self._log.start.offset
        if known.charges is None or known.charges.charge_within(len(self._frame), self.busy_s):
            known.metrics.answered(time.perf_counter() - self._started)
            self._place.answer(known.row.encode(self._correlation_id, base_offset, self.time_ms, start))
        else:
            call = self._call()
            self._place.respond(call, written_response(call, base_offset, self.time_ms, start))

    def _refuse(self, error: Exception) -> None:
        call, topic = self._call(), self._known.topic
        produced = Produced(self._data, self._header, self.time_ms)
        assert topic is not None
        self._place.respond(call, refused_response(call, topic, produced, self._log, error))

    def _call(self) -> Call[ProduceRequest]:
        """The request on the general path, which charges it."""
        return replace(
            self._known.call, correlation_id=self._correlation_id, frame=self._frame, started=self._started,
            busy_s=self.busy_s or 0.0,
        )  # fmt: skip
