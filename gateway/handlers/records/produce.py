"""Produce (key 0), v0-v13.

v0-v2 message sets (magic 0 and 1, also 2); v1 throttle time; v2 log append time; v3 one v2 batch, transactional id; v5
log start offset; v7 zstd; v8 record errors and a message; v9 flexible; v10 leader hints (KIP-951); v12 as v11; v13
topic ids instead of names (KIP-516).

acks=0 has no answer: if an answer would contain an error, the connection is closed, as in Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.topics import TopicPartition
from gateway.errors import KafkaError
from gateway.fan_out import Slices, fan_out
from gateway.handlers.records.produce_answers import Part, add_topic, refuse
from gateway.handlers.records.verification import refused_as_whole, unverified, verify, verify_at_once
from gateway.log.transactions.verifications import VerificationLostError
from gateway.log.writing.checking import (
    IN_THE_LOOP,
    Effort,
    HeavyRecordsError,
    Produced,
    check_produced,
)
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.producer import STALLED_S
from gateway.requests.brokers import check_leader
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.reply import Reply
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.batch import BatchHeader, CorruptBatch, InvalidBatch
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedTopic, topic_key
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse

TOPIC_ID_VERSION = 13
MIN_TIMEOUT_S = 1.0
"""Kafka's leader answers at once what goes to Pulsar here: a timeout of some milliseconds is too short for that."""
ANSWERED_BY_THEN_S = STALLED_S + 5.0
"""By then, batches that Pulsar left unanswered are answered: their log is reopened. Longer timeouts need no timer."""
CHECK_S = 0.02
"""A request's batches are checked for this time before the event loop serves others; the rest is checked in slices."""
APPENDED_AT_ONCE = 200
PREPARED_AT_ONCE = 1_000
"""Partitions of one request. Few of them use Pulsar at the same time (`OpeningTurns`), the others wait."""
ADMIN_CLIENT_ID = "__admin_client"
"""Kafka lets only this client id write to internal topics."""
_STORAGE_ERRORS = (KafkaError, PulsarError, CorruptBatch, InvalidBatch, TimeoutError, OSError)


log = SparseLog(structlog.get_logger())


class ProduceCall:
    """One Produce request. It counts the partitions that are in flight; the last one completes the answer."""

    def __init__(self, call: Call[ProduceRequest]) -> None:
        self.call = call
        self.response = ProduceResponse()
        self.future: asyncio.Future[ProduceResponse | None] = asyncio.get_running_loop().create_future()
        self._parts: list[Part] = []
        self._open = 1
        self._waits_since = call.started
        """When the request began to wait for Pulsar."""

    def check(self) -> None:
        """Check each partition's records, as far as this needs no waiting and does not delay others."""
        end = time.monotonic() + CHECK_S
        refused = refused_as_whole(self.call.request)
        for topic, latest in _named(self.call.request):
            answer = add_topic(self.response, topic)
            for index, records in latest.items():
                part = Part(topic, index, records)
                answer.partition_responses.append(part.answer)
                self._parts.append(part)
                if refused:
                    refuse(self.call, self.response, part, KafkaError(refused))
                elif time.monotonic() < end:
                    self._begin(part)

    def _begin(self, part: Part) -> None:
        try:
            self._find(part)
            if part.topic is not None:
                self._check_batch(part)
                self._verify_at_once(part)
        except _STORAGE_ERRORS as error:
            refuse(self.call, self.response, part, error)

    def _find(self, part: Part) -> None:
        name, index = part.name, part.answer.index
        if not name and self.call.version >= TOPIC_ID_VERSION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        topic = self.call.cluster.topics.cached(name)
        if topic is None:
            return
        if part.topic_id is not None and part.topic_id != topic.topic_id:  # created again since its name was looked up
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.call.request.acks not in {-1, 0, 1}:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if name in INTERNAL_TOPICS and self.call.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        check_leader(self.call, name, index)
        part.topic = topic
        part.log = self.call.cluster.logs.find(name, index)

    def _check_batch(self, part: Part) -> None:
        try:
            part.produced = self._checked(part, IN_THE_LOOP)
        except HeavyRecordsError:
            part.is_heavy = True

    def _verify_at_once(self, part: Part) -> None:
        """Each transaction begins once in each of its partitions: the preparation of a batch costs much more."""
        if part.log is None or part.produced is None or self._begins_transactions(part):
            return
        header, client, index = part.produced.header, self.call.client, part.answer.index
        if not part.log.lacks_verification(header, client.number, client.arrived_s):
            return
        if self.call.cluster.fleet.role(part.name, index) is PartitionRole.LEADING:
            verify_at_once(self.call, part.log.transactional_writes, TopicPartition(part.name, index), header)

    def _checked(self, part: Part, effort: Effort | None) -> Produced | None:
        assert part.topic is not None
        return check_produced(
            part.records, self.call.version, part.topic, self.call.cluster.config.limits, int(time.time() * 1000),
            transactional=self.call.request.transactional_id is not None, effort=effort,
        )  # fmt: skip

    @property
    def ready(self) -> bool:
        """Every partition's log can accept its batch immediately."""
        client = self.call.client
        for part in self._parts:
            if part.is_heavy or (part.has_log_start and part.log is None):
                return False
            if part.topic is None and not part.answer.error_code:
                return False
            if part.produced is not None and (
                part.log is None or not part.log.ready_for(part.produced.header, client.number, client.arrived_s)
            ):
                return False
            if part.topic is not None and part.topic.compacts and self._begins_transactions(part):
                return False
        return True

    @property
    def is_small(self) -> bool:
        """The batches are so few that they are appended without giving others their turn."""
        return len(self._parts) <= APPENDED_AT_ONCE

    async def prepare(self) -> Reply:
        """Look up topics and open logs, then append the batches that are ready within the request's timeout."""
        await fan_out(self._prepare, self._parts, at_once=PREPARED_AT_ONCE)
        return await self.append_in_slices()

    @property
    def _left_s(self) -> float:
        """The time until the client waits no longer, and sends everything again."""
        timeout_s: float = max(MIN_TIMEOUT_S, self.call.request.timeout_ms / 1000)
        return max(0.0, timeout_s - (time.perf_counter() - self._waits_since))

    async def _prepare(self, part: Part) -> None:
        if not part.answer.error_code:
            try:
                async with asyncio.timeout(self._left_s):
                    await self._look_up(part)
                if part.is_heavy:
                    await self._decode(part)
                async with asyncio.timeout(self._left_s):
                    await self._open_log(part)
            except _STORAGE_ERRORS as error:
                refuse(self.call, self.response, part, error)
        if part.has_log_start and part.log is None:
            await self._set_log_start(part)

    async def _look_up(self, part: Part) -> None:
        checked, part.topic = part.topic, None
        self._find(part)  # again: others had their turn since `check`, which had no time for the last ones
        while part.topic is None:  # it may be deleted, and created again, as soon as it is found
            if await self.call.topics.get(part.name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._find(part)
        if part.topic is not checked:
            part.is_heavy = False
            self._check_batch(part)

    async def _decode(self, part: Part) -> None:
        """Decode for as long as it takes, as in Kafka, whose timeout begins when a batch is appended: otherwise a batch
        that takes longer would be sent again forever."""
        work, cluster = partial(self._checked, part, None), self.call.cluster
        part.produced = await cluster.logs.decoding.run(work, self.call.client.number)
        self._waits_since = time.perf_counter()
        if part.topic is not None:
            topic = cluster.topics.cached(part.name)
            if topic is None or topic.topic_id != part.topic.topic_id:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic was deleted in the meantime")

    async def _open_log(self, part: Part) -> None:
        logs = self.call.cluster.logs
        if part.produced is not None and part.topic is not None:
            part.log = await logs.open(part.topic, part.answer.index, urgent=True)
            # First, so that the log's producer state, when it is read, has the previous leader's last batches.
            self._check_leader(part, part.produced.header)
            header = part.produced.header
            if self._begins_transactions(part):
                await self._begin_transactions(part, part.topic.name)
            if header.producer_id >= 0:
                cluster = self.call.cluster
                cluster.openings_ahead.needed(part.topic, part.answer.index, cluster.fleet, cluster.logs)
            await part.log.prepare(header, self.call.client.number, self.call.client.arrived_s)
            if header.is_transactional and header.producer_id >= 0:
                partition = TopicPartition(part.topic.name, part.answer.index)
                await verify(self.call, part.log.transactional_writes, partition, header)

    async def _set_log_start(self, part: Part) -> None:
        """The batch is refused; if its log opens in time, the answer has the log start offset."""
        assert part.topic is not None
        try:
            async with asyncio.timeout(self._left_s):
                part.log = await self.call.cluster.logs.open(part.topic, part.answer.index, urgent=True)
        except _STORAGE_ERRORS as error:
            log.info("cannot tell the log start", topic=part.name, partition=part.answer.index, error=str(error))
        else:
            part.answer.log_start_offset = part.log.start.offset

    @staticmethod
    def _begins_transactions(part: Part) -> bool:
        """As far as is known here; another gateway may have seen the first one."""
        if part.topic is None or part.log is None or part.produced is None or part.topic.has_transactions:
            return False
        return part.produced.header.is_transactional or (part.topic.compacts and part.log.transactions.flagged)

    async def _begin_transactions(self, part: Part, name: str) -> None:
        """From then on the records of a compacted topic are stored in another way."""
        await self.call.cluster.topics.begin_transactions(name)
        part.topic = await self.call.cluster.topics.get(name)
        if part.topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if part.topic.has_compaction_keys:
            await self._decode(part)

    async def append_in_slices(self) -> Reply:
        """As ``append``, for very many batches: others get their turn between them."""
        slices = Slices()
        for part in self._parts:
            await slices.pause()
            self._check_format(part)
            self._append(part)
        return self._appended()

    def append(self) -> Reply:
        """Append the batches in order; the answer is complete when all are durable."""
        for part in self._parts:
            self._append(part)
        return self._appended()

    def _check_format(self, part: Part) -> None:
        """Since the topic was looked up, others may have given it another format, before its first record."""
        if part.topic is not None and not part.answer.error_code:
            topic = self.call.cluster.topics.cached(part.name)
            if topic is None or topic.writes_messages != part.topic.writes_messages:
                changed = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic was changed in the meantime")
                refuse(self.call, self.response, part, changed)

    def _append(self, part: Part) -> None:
        if part.produced is None or part.answer.error_code or part.log is None:
            return
        self._open += 1
        part.waits = True
        part.answer.log_append_time_ms = part.produced.log_append_time_ms
        try:
            self._check_leader(part, part.produced.header)
            if part.topic is not None and part.topic.compacts and self._begins_transactions(part):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic has got its first transaction")
            self.call.client.refused.check(part.key, part.answer.index, part.produced.header, part.log.producers)
            produced, source = part.produced, self.call.client.number
            if part.log.append(produced.data, produced.header, source, self._done(part), produced.messages):
                # Kafka returns the time at which the repeated batch was first written.
                part.answer.log_append_time_ms = part.produced.header.max_timestamp
        except _STORAGE_ERRORS as error:
            part.waits = False
            if isinstance(error, VerificationLostError):
                refuse(self.call, self.response, part, unverified(self.call.version, error.code))
            else:
                refuse(self.call, self.response, part, error)
            self._open -= 1

    def _appended(self) -> Reply:
        self._complete_one()
        # A batch that another partition delayed is not answered before Pulsar can have written it.
        left_s = max(MIN_TIMEOUT_S, self._left_s)
        if self.call.request.acks != 0 and not self.future.done() and left_s < ANSWERED_BY_THEN_S:
            timer = asyncio.get_running_loop().call_later(left_s, self._time_out)
            self.future.add_done_callback(lambda _: timer.cancel())
        return Reply.later(self.future)

    def _time_out(self) -> None:
        """As in Kafka, batches that are not written yet are answered with an error, and may be written later."""
        for part in self._parts:
            if part.waits:
                refuse(self.call, self.response, part, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        if not self.future.done():
            self.future.set_result(self.response)

    def _check_leader(self, part: Part, header: BatchHeader) -> None:
        """Check again: the leader may have changed. And two leaders must not check the same idempotent producer."""
        check_leader(self.call, part.name, part.answer.index)
        if header.producer_id < 0:
            return
        if self.call.cluster.fleet.role(part.name, part.answer.index) is not PartitionRole.LEADING:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _done(self, part: Part) -> Callable[[int, Exception | None], None]:
        def done(base_offset: int, error: Exception | None) -> None:
            if self.future.done():  # the request is answered
                return
            part.waits = False
            if error is not None:
                refuse(self.call, self.response, part, error)
            else:
                assert part.log is not None and part.produced is not None
                part.answer.base_offset = base_offset
                part.answer.log_start_offset = part.log.start.offset
            self._complete_one()

        return done

    def _complete_one(self) -> None:
        self._open -= 1
        if self._open or self.future.done():
            return
        if self.call.request.acks != 0:
            self.future.set_result(self.response)
        elif any(part.answer.error_code for part in self._parts):
            self.future.set_exception(ClosesConnection("a batch with acks=0 was refused"))
        else:
            self.future.set_result(None)


def _named(request: ProduceRequest) -> Iterable[tuple[ProducedTopic, dict[int, memoryview | None]]]:
    """Each topic, and its batches by partition. As in Kafka, the last batch of a partition is the only one."""
    found: dict[str, tuple[ProducedTopic, dict[int, memoryview | None]]] = {}
    for topic in request.topic_data:
        if topic.partition_data:
            _, latest = found.setdefault(topic_key(topic), (topic, {}))
            latest.update({partition.index: partition.records for partition in topic.partition_data})
    return found.values()


def handle(call: Call[ProduceRequest]) -> Reply:
    return _handle_named(call) if names_known(call) else Reply.after(_handle_when_named(call))


async def _handle_when_named(call: Call[ProduceRequest]) -> Reply:
    await look_up_names(call)
    return _handle_named(call)


def names_known(call: Call[ProduceRequest]) -> bool:
    """Whether the topics have their names; fills in the known names of topics that are given by their ids."""
    if call.version < TOPIC_ID_VERSION:
        return True
    cached_name = call.cluster.topics.cached_name
    for topic in call.request.topic_data:
        topic.name = topic.name or cached_name(topic.topic_id) or ""
    return all(topic.name for topic in call.request.topic_data)


async def look_up_names(call: Call[ProduceRequest]) -> None:
    """Fill in missing names. A topic that has no name then has an unknown id."""

    async def look_up(topic: ProducedTopic) -> None:
        try:
            found = await call.cluster.topics.get_by_id(topic.topic_id)
        except PulsarError as error:
            log.warning("cannot look up topic", topic_id=str(topic.topic_id), error=str(error))
        else:
            topic.name = "" if found is None else found.name

    await fan_out(look_up, [topic for topic in call.request.topic_data if not topic.name])


def _handle_named(call: Call[ProduceRequest]) -> Reply:
    produce = ProduceCall(call)
    produce.check()
    if not produce.ready:
        return Reply.after(produce.prepare())
    return produce.append() if produce.is_small else Reply.after(produce.append_in_slices())
