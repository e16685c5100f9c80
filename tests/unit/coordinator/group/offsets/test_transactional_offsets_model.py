"""Random histories of a group's offsets, committed plainly and in transactions, compared with a reference model.

The log is slow, refuses some appends, and loses appends in flight when the coordinator crashes: an append of many
records may then be torn. A transaction ends in appends of one offset, of two, or of all. Of the remaining log, only the
last record of each key is loaded, in any order.

In the reference, an offset has the position at which it was stored. The last valid offset wins: plain commits are valid
immediately, those of a transaction when it is committed, all until they are deleted.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.group.messages import DeleteOffsetsResponse, FetchedOffset, FetchOffsetsRequest, OffsetToCommit
from coordinator.group.offsets import transactions
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.records.transactional_offset import TransactionalOffsetValue
from coordinator.log import OnAppended, Record
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import GroupLog, Harness, Parked

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SOME = st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True)
GROUPS = st.sampled_from(["g", "other"])
PRODUCERS = st.integers(0, 2)
OUTCOMES = st.sampled_from([ErrorCode.NONE] * 4 + [ErrorCode.NOT_ENOUGH_REPLICAS])
LATER = ErrorCode.NOT_LEADER_OR_FOLLOWER
Where = tuple[str, TopicPartition]


class Producer:
    """A producer that runs its transactions one after the other. Number 0 has a new epoch for each (KIP-890)."""

    def __init__(self, number: int) -> None:
        self.id = 7 + number
        self.version = 2 if number == 0 else 1
        self.epoch = 0
        self.transaction = 0
        self.committed: bool | None = None
        """The outcome of its transaction."""
        self.end: Parked[ErrorCode] | None = None
        self.marker: dict[str, Any] = {}
        self.late_marker: dict[str, Any] = {}
        """A marker of a former coordinator. Where epochs show it, also one that its coordinator has abandoned."""

    @property
    def marker_epoch(self) -> int:
        return self.epoch + (self.version == 2)


class Stored(NamedTuple):
    offset: int
    transaction: tuple[int, int] | None
    """(producer, number of its transaction)"""


class TaggedLog(GroupLog):
    """Recognises appends that delete: they look like others."""

    def __init__(self) -> None:
        super().__init__()
        self.deleting: list[Where] = []
        self.tags: list[list[Where]] = []

    def append(self, records: Sequence[Record], on_done: OnAppended, *, irrevocable: bool = False) -> None:
        self.tags.append(self.deleting)
        super().append(records, on_done, irrevocable=irrevocable)


class OffsetsLife(RuleBasedStateMachine):
    @initialize(part_offsets=st.sampled_from([1, 2, transactions.PART_OFFSETS]))
    def start(self, part_offsets: int) -> None:
        self._restored = pytest.MonkeyPatch()
        self._restored.setattr(transactions, "PART_OFFSETS", part_offsets)
        self.h = self.new_harness()
        self.h.load()
        self.producers = [Producer(number) for number in range(3)]
        self.coordinator_epoch = 1
        self.next_offset = 0
        self.of: dict[int, tuple[Where, tuple[int, int] | None]] = {}
        """For each offset, which is committed once: where, and in which transaction."""
        self.stored: dict[Where, list[Stored]] = {}
        self.fates: dict[tuple[int, int], bool] = {}
        self.ever_stored: set[int] = set()
        self.answers: list[tuple[dict[TopicPartition, OffsetToCommit], Parked[Any]]] = []

    def teardown(self) -> None:
        self._restored.undo()

    def new_harness(self) -> Harness:
        return Harness(auto=False, load=False, log=TaggedLog())

    # --- What clients do

    def offsets(
        self, group: str, partitions: list[TopicPartition], transaction: Any
    ) -> dict[TopicPartition, OffsetToCommit]:
        made = {}
        for partition in partitions:
            self.next_offset += 1
            self.of[self.next_offset] = ((group, partition), transaction)
            made[partition] = OffsetToCommit(self.next_offset)
        return made

    @rule(group=GROUPS, partitions=SOME)
    def commit(self, group: str, partitions: list[TopicPartition]) -> None:
        offsets = self.offsets(group, partitions, None)
        parked = self.h.commit(group=group, offsets=offsets)
        self.answers.append((offsets, parked))

    @rule(number=PRODUCERS, group=GROUPS, partitions=SOME)
    def commit_in_transaction(self, number: int, group: str, partitions: list[TopicPartition]) -> None:
        producer = self.producers[number]
        if producer.committed is not None:
            return
        offsets = self.offsets(group, partitions, (number, producer.transaction))
        parked = self.h.commit_in_transaction(
            group=group, offsets=offsets, producer_id=producer.id, producer_epoch=producer.epoch
        )
        assert not parked.answers, parked.answer
        self.answers.append((offsets, parked))

    @rule(number=PRODUCERS, committed=st.booleans())
    def end(self, number: int, committed: bool) -> None:
        """A client may commit a transaction before it has all responses."""
        producer = self.producers[number]
        if producer.committed is None:
            producer.committed = self.fates[number, producer.transaction] = committed
            self.send_marker(number)

    @rule(number=PRODUCERS)
    def send_marker(self, number: int) -> None:
        producer = self.producers[number]
        if producer.committed is not None and (producer.end is None or producer.end.answers):
            producer.marker = {
                "producer_id": producer.id, "producer_epoch": producer.marker_epoch, "committed": producer.committed,
                "coordinator_epoch": self.coordinator_epoch, "transaction_version": producer.version,
            }  # fmt: skip
            producer.end = self.h.end_transaction(**producer.marker)

    @rule(number=PRODUCERS)
    def late_marker(self, number: int) -> None:
        """A marker of a finished transaction of the producer, if it is still in flight."""
        producer = self.producers[number]
        if producer.committed is None and producer.late_marker:
            self.h.end_transaction(**producer.late_marker)

    @rule(group=GROUPS, partitions=SOME)
    def delete(self, group: str, partitions: list[TopicPartition]) -> None:
        log = self.h.log
        assert isinstance(log, TaggedLog)
        log.deleting = [(group, partition) for partition in partitions]
        self.h.coordinator.delete_offsets(group, partitions, self.h.now_ms, Parked[DeleteOffsetsResponse]())
        log.deleting = []

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        log = self.h.log
        assert isinstance(log, TaggedLog)
        log.deleting = [(group, partition) for partition in PARTITIONS]
        self.h.coordinator.delete_groups([group], self.h.now_ms, Parked[Any]())
        log.deleting = []

    # --- What the world does

    @rule(error=OUTCOMES, count=st.integers(1, 4))
    def log_answers(self, error: ErrorCode, count: int) -> None:
        for _ in range(min(count, len(self.h.log.waiting))):
            self.finish_append(error)
        self.transactions_go_on()

    def finish_append(self, error: ErrorCode) -> None:
        log = self.h.log
        assert isinstance(log, TaggedLog)
        deleted, error = log.tags.pop(0), log.next_outcome(error)
        records = log.waiting[0][0]
        if not error:
            self.store(records, deleted)
        log.finish_one(self.h.now_ms, error)

    def store(self, records: Sequence[Record], deleted: list[Where]) -> None:
        """Add what is durable to the reference."""
        for where in deleted:
            self.stored.pop(where, None)
        log = GroupLog()
        log.durable = [*records]
        for _, value in log.decoded():
            offset = value.offset if isinstance(value, OffsetCommitValue | TransactionalOffsetValue) else None
            if isinstance(offset, OffsetCommitValue):
                offset = -1 if value.superseded else offset.offset
            if offset is not None and offset >= 0:
                where, transaction = self.of[offset]
                is_of_transaction = isinstance(value, TransactionalOffsetValue)
                # Otherwise the end of a transaction, whose position is known.
                if is_of_transaction == (transaction is not None):
                    self.stored.setdefault(where, []).append(Stored(offset, transaction))
                    self.ever_stored.add(offset)

    def transactions_go_on(self) -> None:
        for producer in self.producers:
            if producer.end is not None and producer.end.answers:
                assert producer.end.answer in (ErrorCode.NONE, LATER)
                if producer.end.answer is ErrorCode.NONE:
                    producer.epoch, producer.committed = producer.marker_epoch, None
                    if producer.version == 2:
                        producer.late_marker = producer.marker
                    producer.transaction += 1
                producer.end = None

    @rule()
    def transaction_coordinator_moves(self) -> None:
        self.coordinator_epoch += 1
        for producer in self.producers:
            if producer.committed is not None:
                producer.late_marker = producer.marker
            producer.end = None  # the response is lost

    @rule(kept=st.integers(0, 5), torn=st.integers(0, 10), seed=st.integers(0, 99))
    def crash(self, kept: int, torn: int, seed: int) -> None:
        old = self.h
        assert isinstance(old.log, TaggedLog)
        old.coordinator.resign(old.now_ms)
        for _ in range(min(kept, len(old.log.waiting))):
            self.finish_append(ErrorCode.NONE)
        durable = [*old.log.durable]
        if old.log.waiting and not old.log.tags[0]:
            records = [*old.log.waiting[0][0]]
            is_end = any(value is None for _, value in records)
            part = records[:torn] if is_end else []
            self.store(part, [])
            durable += part
        while old.log.waiting:
            old.log.tags.pop(0)
            old.log.finish_one(old.now_ms, LATER)
        self.transactions_go_on()
        for producer in self.producers:
            assert producer.end is None, "a marker without an answer"
        self.load([*dict(durable).items()], seed)

    @rule(number=PRODUCERS, torn=st.integers(0, 12), seed=st.integers(0, 99))
    def crash_while_a_transaction_ends(self, number: int, torn: int, seed: int) -> None:
        while self.h.log.waiting:
            self.finish_append(ErrorCode.NONE)
        self.transactions_go_on()
        self.end(number, committed=True)
        self.crash(0, torn, seed)

    @rule(number=PRODUCERS, group=GROUPS, partitions=SOME, error=OUTCOMES)
    def end_beside_a_commit(self, number: int, group: str, partitions: list[TopicPartition], error: ErrorCode) -> None:
        self.commit(group, partitions)
        self.end(number, committed=True)
        self.log_answers(error, len(partitions))

    def load(self, last: list[tuple[bytes, bytes | None]], seed: int) -> None:
        Random(seed).shuffle(last)
        self.h = self.new_harness()
        self.h.log.durable = [Record(*each) for each in last]
        for key, value in last:
            if value is not None:
                self.h.coordinator.replay(key, value)
        self.h.load()

    # --- What must hold

    def expected(self, where: Where) -> FetchedOffset:
        stored = self.stored.get(where, ())
        counts = [each.offset for each in stored if each.transaction is None or self.fates.get(each.transaction)]
        return FetchedOffset(counts[-1]) if counts else FetchedOffset()

    def is_open(self, where: Where) -> bool:
        return any(
            each.transaction is not None and each.transaction not in self.fates for each in self.stored.get(where, ())
        )

    def was_open(self, where: Where) -> bool:
        """An open transaction was to have an offset there.

        If that offset was refused or deleted, a commit that was made before may be stored as superseded.
        """
        return any(at == where and each is not None and each not in self.fates for at, each in self.of.values())

    @invariant()
    def acknowledged_is_stored(self) -> None:
        for offsets, parked in self.answers:
            if parked.answers:
                acknowledged = [partition for partition, error in parked.answer.items() if error is ErrorCode.NONE]
                assert {offsets[partition].offset for partition in acknowledged} <= self.ever_stored
        self.answers = [(offsets, parked) for offsets, parked in self.answers if not parked.answers]

    @precondition(lambda self: not self.h.log.waiting and all(p.committed is None for p in self.producers))
    @invariant()
    def as_in_the_reference(self) -> None:
        for group in ("g", "other"):
            asked = FetchOffsetsRequest(group, PARTITIONS)
            fetched = self.h.coordinator.fetch_offsets(asked).offsets
            stable = self.h.coordinator.fetch_offsets(FetchOffsetsRequest(group, PARTITIONS, True)).offsets
            for partition in PARTITIONS:
                where = (group, partition)
                assert fetched[partition] == self.expected(where), where
                unstable = stable[partition].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
                assert unstable or not self.is_open(where), where
                assert not unstable or self.was_open(where), where

    @rule(seed=st.integers(0, 99))
    def comes_to_rest(self, seed: int) -> None:
        """All is answered, and every decided transaction ends; then a coordinator loads everything."""
        for _ in range(20):
            for number in range(3):
                self.send_marker(number)
            while self.h.log.waiting:
                self.finish_append(ErrorCode.NONE)
            self.transactions_go_on()
        assert all(producer.committed is None for producer in self.producers), "an end without an end"
        assert all(parked.answers for _, parked in self.answers)
        self.as_in_the_reference()
        self.load([*dict(self.h.log.durable).items()], seed)


OffsetsLife.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestOffsetsLife = OffsetsLife.TestCase
