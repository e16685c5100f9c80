"""Requests at random of transactional producers: records, offsets of a group, and what consumers see of them.

Two of the three have the same transactional id: each fences the other when it begins again.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.data.test_list_offsets import EARLIEST, LATEST
from tests.conformance.data.test_random_fetches import AT_RANDOM
from tests.conformance.groups.test_groups import new_group
from tests.conformance.records import batch, records
from tests.conformance.requests import produce_fields, read_back
from tests.conformance.transactional import offsets
from tests.conformance.transactions import (
    CONCURRENT_TRANSACTIONS,
    NOT_ENOUGH_REPLICAS,
    READ_COMMITTED,
    Transactional,
    await_complete,
    eventually,
    one_segment,
    read_committed,
)

PARTITIONS = 2
UNSTABLE_OFFSET_COMMIT = 88
OWN_EPOCH_INIT, EPOCH_RAISING_END = 3, 5
NUMBERS = itertools.count()
"""Each conversation has a topic of its own."""


class Init(NamedTuple):
    """`epoch` is None, or added to the epoch that the producer names as its own (KIP-360)."""

    producer: int
    version: int
    epoch: int | None


class Add(NamedTuple):
    producer: int
    version: int
    partitions: list[int]
    epoch: int


class Write(NamedTuple):
    """`step` is added to the next sequence. Without a producer, the records belong to no transaction."""

    producer: int | None
    version: int
    partition: int
    size: int
    step: int
    epoch: int


class AddGroup(NamedTuple):
    producer: int
    version: int
    epoch: int


class Commit(NamedTuple):
    """Without a producer, the offset belongs to no transaction."""

    producer: int | None
    version: int
    partition: int
    offset: int
    epoch: int


class End(NamedTuple):
    producer: int
    version: int
    committed: bool
    epoch: int


class Delete(NamedTuple):
    partition: int
    before: int


class Look(NamedTuple):
    what: str
    partition: int
    offset: int


class Newest(NamedTuple):
    """The highest version of each request in a conversation."""

    init: int
    add: int
    add_group: int
    write: int
    commit: int
    end: int


KAFKA_3 = Newest(init=4, add=3, add_group=3, write=11, commit=3, end=3)
KAFKA_4 = Newest(init=5, add=3, add_group=4, write=12, commit=5, end=5)
WHO, INDEXES = st.sampled_from([0, 0, 0, 0, 1, 2]), st.sampled_from([0, 0, 0, 1])
EPOCHS = st.sampled_from([0] * 12 + [1, -1])
OFTEN = ["add", "end", "look"] * 3 + ["write"] * 6 + ["commit"] * 2 + ["add group", "init", "delete"]


def _steps(newest: Newest, oldest_end: int) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "init": st.builds(Init, WHO, st.integers(0, newest.init), st.sampled_from([None, None, 0, 0, -1, 1])),
        "add": st.builds(
            Add, WHO, st.integers(0, newest.add), st.sampled_from([[0], [0], [0, 1], [1], [0, PARTITIONS], []]), EPOCHS
        ),
        "write": st.builds(
            Write,
            st.one_of(WHO, WHO, WHO, st.none()),
            st.integers(3, newest.write),
            INDEXES,
            st.integers(1, 3),
            st.sampled_from([0] * 12 + [1, -1]),
            EPOCHS,
        ),
        "add group": st.builds(AddGroup, WHO, st.integers(0, newest.add_group), EPOCHS),
        "commit": st.builds(
            Commit,
            st.one_of(WHO, WHO, WHO, st.none()),
            st.integers(0, newest.commit),
            INDEXES,
            st.integers(0, 9),
            EPOCHS,
        ),
        "end": st.builds(End, WHO, st.integers(oldest_end, newest.end), st.booleans(), EPOCHS),
        "delete": st.builds(Delete, INDEXES, st.integers(0, 12)),
        "look": st.builds(
            Look,
            st.sampled_from(["committed", "all", "end", "stable end", "offsets", "stable offsets", "transactions"]),
            INDEXES,
            st.sampled_from([0, 0, 0, 1, 2, 5]),
        ),
    }


def conversations(newest: Newest) -> st.SearchStrategy[list[Any]]:
    """If no end has raised the epoch, Kafka still takes an end with the epoch before for a repeated one. So the ends of
    a conversation all raise it, or none does."""
    ends = [(0, min(newest.end, EPOCH_RAISING_END - 1))]
    ends += [(EPOCH_RAISING_END, newest.end)] if newest.end >= EPOCH_RAISING_END else []
    return st.one_of(*(_lists(_steps(newest._replace(end=last), first)) for first, last in ends))


def _lists(steps: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(OFTEN).flatmap(steps.__getitem__), min_size=5, max_size=30)


class Producer(Transactional):
    """It remembers its sequences, and where its transaction has uncommitted offsets."""

    def __init__(self, conversation: Conversation, twin: Producer | None = None) -> None:
        """`twin`: a producer with the same transactional id, which is fenced."""
        super().__init__(conversation, name=None if twin is None else twin.transactional_id)
        self.next: dict[int, int] = {}
        """The next sequence of each partition."""
        self.pending: set[int] = set() if twin is None else twin.pending

    def began_again(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.next.clear()
        self.id, self.epoch = producer_id, epoch


class Clients:
    def __init__(self, conversation: Conversation, topic: str, newest: Newest) -> None:
        self._talk = conversation
        self._newest = newest
        self._topic = topic
        self._group = new_group(conversation)
        first = Producer(conversation)
        self._producers = [first, Producer(conversation), Producer(conversation, first)]

    def do(self, step: Any) -> None:
        match step:
            case Init():
                self._init(self._producers[step.producer], step)
            case Add():
                producer = self._producers[step.producer]
                rows = {self._topic: step.partitions} if step.partitions else {}
                producer.add(step.version, rows, producer_epoch=producer.epoch + step.epoch)
            case Write():
                self._write(step)
            case AddGroup():
                producer = self._producers[step.producer]
                producer.add_offsets(step.version, self._group, producer_epoch=producer.epoch + step.epoch)
            case Commit():
                self._commit(step)
            case End():
                self._end(self._producers[step.producer], step)
            case Delete():
                row = {"partition_index": step.partition, "offset": step.before}
                asked = [{"name": self._topic, "partitions": [row]}]
                self._talk.call("DeleteRecords", 1, topics=asked, timeout_ms=10_000)
            case Look():
                self.look(step)

    def _init(self, producer: Producer, step: Init) -> None:
        more = {}
        # Since `transaction.version` 2, a producer may abort its own transaction like this; Kafka 3.9 has 0.
        is_refused = self._newest is KAFKA_3 and self._state(producer) == "Ongoing"
        if step.epoch is not None and step.version >= OWN_EPOCH_INIT and not is_refused:
            more = {"producer_id": producer.id, "producer_epoch": max(0, producer.epoch + step.epoch)}
        answer = producer.init(step.version, **more)
        self._began_again(producer, answer)
        self._await_markers(producer)

    def _began_again(self, producer: Producer, answer: dict[str, Any]) -> None:
        if answer["error_code"] == 0:
            known = self._talk.names.producer_ids
            known.setdefault(answer["producer_id"], f"<producer {len(known)}>")
            producer.began_again(answer["producer_id"], answer["producer_epoch"])

    def _write(self, step: Write) -> None:
        if step.producer is None:
            self._produce(step, batch(records(step.size)), None)
            return
        producer = self._producers[step.producer]
        known = producer.next.get(step.partition, 0)
        # If no batch is in the log, what may come first depends in Kafka on earlier requests that were refused.
        sequence = max(0, known + step.step) if known else 0
        later = min(0, step.epoch) if self._is_fenced(producer) else step.epoch
        data = producer.data(step.size, epoch=producer.epoch + later, sequence=sequence)
        if self._produce(step, data, producer.transactional_id) == 0 and not later:
            producer.next[step.partition] = max(known, sequence + step.size)

    def _is_fenced(self, producer: Producer) -> bool:
        """Whether a twin with the same producer id has a newer epoch."""
        return any(other.id == producer.id and other.epoch > producer.epoch for other in self._producers)

    def _produce(self, step: Write, data: bytes, transactional_id: str | None) -> int:
        """Retries while the transaction is being looked up, as clients do."""
        before = list(self._talk.answers)

        def ask() -> dict[str, Any]:
            self._talk.answers[:] = before
            topics: dict[str, dict[int, bytes | None]] = {self._topic: {step.partition: data}}
            fields = produce_fields(step.version, topics, transactional_id=transactional_id)
            return self._talk.call("Produce", step.version, **fields)

        answer = eventually(ask, lambda found: _code(found) not in (NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS))
        if _code(answer) and self._newest is KAFKA_4:  # it asks the coordinator first, and does not know the start then
            _row(self._talk.answers[-1]["Produce"]).pop("log_start_offset", None)
        return _code(answer)

    def _commit(self, step: Commit) -> None:
        if step.producer is None:
            row = {"partition_index": step.partition, "committed_offset": step.offset, "committed_metadata": ""}
            self._talk.call(
                "OffsetCommit", 5, group_id=self._group, generation_id_or_member_epoch=-1, member_id="",
                topics=[{"name": self._topic, "partitions": [row]}],
            )  # fmt: skip
            return
        producer = self._producers[step.producer]
        # Within a transaction, Kafka accepts a newer epoch: it refuses the marker then, and never ends the transaction.
        later = 0 if producer.pending and step.epoch > 0 else step.epoch
        answer = offsets.commit(
            self._talk, step.version, producer, self._group, {step.partition: step.offset}, topic=self._topic,
            producer_epoch=producer.epoch + later,
        )  # fmt: skip
        if not later and answer["topics"][0]["partitions"][0]["error_code"] == 0:
            producer.pending.add(step.partition)

    def _end(self, producer: Producer, step: End) -> None:
        answer = producer.end(step.version, committed=step.committed, producer_epoch=producer.epoch + step.epoch)
        if step.version >= EPOCH_RAISING_END:
            self._began_again(producer, answer)
        self._await_markers(producer)

    def _await_markers(self, producer: Producer) -> None:
        """Both servers write them after the response."""
        if self._state(producer) in ("Ongoing", "Empty"):
            return
        await_complete(self._talk, producer.transactional_id)
        pending = set(producer.pending)
        producer.pending.clear()
        of_others = {partition for other in self._producers for partition in other.pending}
        if pending - of_others:
            self._await_stable(pending - of_others)

    def _await_stable(self, partitions: set[int]) -> None:
        asked = [{"name": self._topic, "partition_indexes": sorted(partitions)}]
        eventually(
            lambda: self._talk.client.call(
                "OffsetFetch", 7, group_id=self._group, topics=asked, require_stable=True
            ),
            lambda found: all(
                row["error_code"] != UNSTABLE_OFFSET_COMMIT for row in found["topics"][0]["partitions"]
            ),
        )

    def _state(self, producer: Producer) -> str:
        asked = {"transactional_ids": [producer.transactional_id]}
        answer = self._talk.client.call("DescribeTransactions", 0, **asked)
        return str(answer["transaction_states"][0]["transaction_state"])

    def look(self, step: Look) -> None:
        match step.what:
            case "committed":
                read_committed(self._talk, self._topic, step.offset, step.partition)
            case "all":
                read_back(self._talk, self._topic, step.partition, from_offset=step.offset)
            case "end" | "stable end":
                row = {"partition_index": step.partition, "timestamp": LATEST if step.offset else EARLIEST}
                level = READ_COMMITTED if step.what == "stable end" else 0
                asked = [{"name": self._topic, "partitions": [row]}]
                self._talk.call("ListOffsets", 3, replica_id=-1, isolation_level=level, topics=asked)
            case "offsets" | "stable offsets":
                named = [{"name": self._topic, "partition_indexes": [0, 1]}]
                stable = step.what == "stable offsets"
                self._talk.call("OffsetFetch", 7, group_id=self._group, topics=named, require_stable=stable)
            case "transactions":
                for producer in self._producers:
                    self._describe(producer)

    def _describe(self, producer: Producer) -> None:
        """Kafka forgets when the last transaction began only when it loads the transactions again."""
        offsets.describe(self._talk, producer.transactional_id)
        (found,) = self._talk.answers[-1]["DescribeTransactions"]["transaction_states"]
        if found["transaction_state"] == "Empty":
            del found["transaction_start_time_ms"]


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return found


def _code(answer: dict[str, Any]) -> int:
    return int(_row(answer)["error_code"])


@AT_RANDOM
@given(steps=conversations(KAFKA_3))
def test_random_transactions(pair: Pair, steps: list[Any]) -> None:
    _compare(pair, KAFKA_3, steps)


@AT_RANDOM
@given(steps=conversations(KAFKA_4))
def test_random_newer_transactions(newest_pair: Pair, steps: list[Any]) -> None:
    """Both servers have `transaction.version` 2 (KIP-890)."""
    _compare(newest_pair, KAFKA_4, steps)


def _compare(pair: Pair, newest: Newest, steps: list[Any]) -> None:
    name = f"random-transactions-{next(NUMBERS)}"

    def converse(conversation: Conversation) -> None:
        clients = Clients(conversation, one_segment(conversation, name, PARTITIONS), newest)
        for step in steps:
            clients.do(step)
        for partition in range(PARTITIONS):
            for what in ("committed", "all", "offsets", "transactions"):
                clients.look(Look(what, partition, 0))

    pair.check("\n".join(["test_random_transactions", *map(repr, steps)]), converse)
