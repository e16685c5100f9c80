"""Requests at random about two topics that change: Produce, also idempotent, DeleteRecords, ListOffsets and fetches."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.data.test_list_offsets import EARLIEST, LATEST
from tests.conformance.data.test_random_fetches import AT_RANDOM, LONG_WAIT, Ask, Client, Form, rows
from tests.conformance.records import GZIP, NONE, T0_MS, batch, records, with_bad_crc
from tests.conformance.requests import MAX_BYTES, init_producer_id, produce_fields, read_back

TOPICS = ("random-records-a", "random-records-b")
UNKNOWN_TOPIC = "random-records-unknown"
PARTITIONS = 2
ABSOLUTE = {"log_start_offset", "low_watermark", "end_offset"}
"""Offsets that are not counted from the start of the conversation."""
AGAIN = 100
"""A batch that was sent before."""


class Batch(NamedTuple):
    """`producer` is None, or one of two. `step` is added to its next sequence; AGAIN repeats an earlier batch."""

    partition: int
    producer: int | None
    step: int
    epoch: int
    size: int
    codec: int
    is_valid: bool


class Write(NamedTuple):
    connection: int
    version: int
    acks: int
    topic: str
    batches: list[Batch]
    waits: bool
    """For the answer, before the next request."""


class Delete(NamedTuple):
    version: int
    topic: str
    partition: int
    before: int


class List(NamedTuple):
    connection: int
    version: int
    topic: str
    partition: int
    timestamp: int
    epoch: int


class Epoch(NamedTuple):
    version: int
    topic: str
    partition: int
    current: int
    epoch: int


NAMES = st.sampled_from([TOPICS[0]] * 20 + [TOPICS[1]] * 4 + [UNKNOWN_TOPIC])
INDEXES = st.sampled_from([0] * 20 + [1] * 4 + [2])
CONNECTIONS = st.sampled_from([0, 0, 0, 1])
EPOCHS = st.sampled_from([-1, -1, -1, 0, 1])
BATCHES = st.builds(
    Batch,
    INDEXES,
    st.sampled_from([None, 0, 0, 0, 0, 1]),
    st.sampled_from([0] * 9 + [1, -1, AGAIN, AGAIN, AGAIN + 1, AGAIN + 4, AGAIN + 6]),
    st.sampled_from([0] * 16 + [1, -1]),
    st.integers(1, 3),
    st.sampled_from([NONE, NONE, GZIP]),
    st.sampled_from([True] * 8 + [False]),
)
OTHERS = (
    st.builds(Delete, st.integers(0, 2), NAMES, INDEXES, st.sampled_from([-1, 0, 1, 2, 5, 40])),
    st.builds(
        List, CONNECTIONS, st.integers(1, 9), NAMES, INDEXES, st.sampled_from([LATEST, EARLIEST, T0_MS + 1]), EPOCHS
    ),
    st.builds(Epoch, st.integers(0, 4), NAMES, INDEXES, EPOCHS, EPOCHS),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Writes and fetches of few kinds, for fast paths are taken by those that repeat themselves."""
    versions = st.sampled_from(draw(st.lists(st.integers(3, 11), min_size=1, max_size=2)))
    write = st.builds(
        Write,
        CONNECTIONS,
        versions,
        st.sampled_from([-1, -1, -1, 1]),
        NAMES,
        st.one_of(st.lists(BATCHES, min_size=1, max_size=1), st.lists(BATCHES, max_size=3)),
        st.booleans(),
    )
    forms = st.builds(Form, st.integers(4, 17), st.just(LONG_WAIT), st.just(MAX_BYTES), st.sampled_from([0, 1]))
    ask = st.builds(
        Ask,
        CONNECTIONS,
        st.sampled_from(draw(st.lists(forms, min_size=1, max_size=2))),
        st.sampled_from([0, 0, 0, None]),
        st.sampled_from([0, 0, 0, 0, 0, "full"]),
        st.one_of(st.just([]), st.lists(rows(st.sampled_from(TOPICS), [0, 1, 2, 3, 5, 9]), max_size=4)),
        st.one_of(st.just([]), st.lists(st.tuples(st.sampled_from(TOPICS), INDEXES), max_size=2)),
    )
    kinds = {"write": write, "ask": ask, "other": st.one_of(OTHERS)}
    steps = st.sampled_from(["write"] * 8 + ["ask", "ask", "other"]).flatmap(kinds.__getitem__)
    return draw(st.lists(steps, min_size=8, max_size=30))


class Clients:
    """Two connections, and two idempotent producers that use both."""

    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self._fetches = Client(conversation)
        self._producers = [init_producer_id(conversation) for _ in range(2)]
        self._epochs = [0, 0]
        self._next: dict[tuple[str, int, int], int] = {}
        self._sent: dict[tuple[str, int, int], list[bytes]] = {}
        self._unanswered: list[tuple[int, int, int]] = []
        """Of Produce requests: the connection, version and correlation id."""

    def do(self, step: Any) -> None:
        if not isinstance(step, Write) or any(step.connection != sent[0] for sent in self._unanswered):
            self.wait()
        match step:
            case Write():
                self._write(step)
            case Ask():
                self._fetches.ask(step)
            case Delete():
                row = {"partition_index": step.partition, "offset": self._absolute(step.before)}
                self._call(0, "DeleteRecords", step.version, step.topic, row, timeout_ms=10_000)
            case List():
                row = {"partition_index": step.partition, "timestamp": step.timestamp}
                row |= {"current_leader_epoch": step.epoch} if step.version >= 4 else {}
                more = {"isolation_level": 0} if step.version >= 2 else {}
                self._call(step.connection, "ListOffsets", step.version, step.topic, row, replica_id=-1, **more)
            case Epoch():
                row = {"partition": step.partition, "leader_epoch": step.epoch}
                row |= {"current_leader_epoch": step.current} if step.version >= 2 else {}
                more = {"replica_id": -1} if step.version >= 3 else {}
                self._call(0, "OffsetForLeaderEpoch", step.version, step.topic, row, **more)

    def _call(self, connection: int, api: str, version: int, topic: str, row: dict[str, int], **more: Any) -> None:
        client = self._fetches.connections[connection]
        name = "topic" if api == "OffsetForLeaderEpoch" else "name"
        topics = [{name: self._talk.names.prefix + topic, "partitions": [row]}]
        self._talk.receive(api, version, client.send(api, version, topics=topics, **more), client)

    def _absolute(self, offset: int) -> int:
        return offset if offset < 0 else offset + self._talk.names.start_offset

    def _write(self, write: Write) -> None:
        data: dict[int, bytes | None] = {each.partition: self._data(write.topic, each) for each in write.batches}
        fields = produce_fields(write.version, {self._talk.names.prefix + write.topic: data}, acks=write.acks)
        sent = self._fetches.connections[write.connection].send("Produce", write.version, **fields)
        self._unanswered.append((write.connection, write.version, sent))
        if write.waits:
            self.wait()

    def wait(self) -> None:
        """For the answers to all Produce requests."""
        for connection, version, sent in self._unanswered:
            self._talk.receive("Produce", version, sent, self._fetches.connections[connection])
        self._unanswered.clear()

    def _data(self, topic: str, wanted: Batch) -> bytes:
        content = records(wanted.size)
        if wanted.producer is None:
            data = batch(content, wanted.codec)
            return data if wanted.is_valid else with_bad_crc(data)
        key = (topic, wanted.partition, wanted.producer)
        sent = self._sent.setdefault(key, [])
        if wanted.step >= AGAIN and sent:
            return sent[-1 - (wanted.step - AGAIN) % len(sent)]
        producer_id, first = self._producers[wanted.producer]
        epoch = self._epochs[wanted.producer] + wanted.epoch
        if wanted.epoch > 0:
            self._epochs[wanted.producer] = epoch
            self._next = {other: 0 for other in self._next if other[2] != wanted.producer}
        step = wanted.step if wanted.step < AGAIN else 0
        sequence = max(0, self._next.get(key, 0) + step)
        data = batch(content, wanted.codec, producer=(producer_id, first + max(0, epoch), sequence))
        if not wanted.is_valid:
            return with_bad_crc(data)
        if not step:
            self._next[key] = sequence + wanted.size
        sent.append(data)
        return data


def begin_at_the_same_offset(conversation: Conversation) -> None:
    """All partitions begin and end at the offset that the conversation calls 0."""
    topics = [conversation.topic(name, partitions=PARTITIONS) for name in TOPICS]
    ends = {(topic, index): conversation.end_offset(topic, index) for topic in topics for index in range(PARTITIONS)}
    highest = conversation.names.start_offset = max(ends.values())
    for (topic, index), end in ends.items():
        if end < highest:
            fields = produce_fields(9, {topic: {index: batch(records(highest - end))}})
            conversation.client.call("Produce", 9, **fields)
    starts = [{"partition_index": index, "offset": highest} for index in range(PARTITIONS)]
    asked = [{"name": topic, "partitions": starts} for topic in topics]
    conversation.client.call("DeleteRecords", 1, topics=asked, timeout_ms=10_000)


def count_from(start: int, value: Any, field: str = "") -> Any:
    """The answers with all offsets relative."""
    if isinstance(value, dict):
        return {key: count_from(start, item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [count_from(start, item, field) for item in value]
    return value - start if field in ABSOLUTE and value >= 0 else value


@AT_RANDOM
@given(steps=conversations())
def test_random_records(pair: Pair, steps: list[Any]) -> None:
    def converse(conversation: Conversation) -> None:
        begin_at_the_same_offset(conversation)
        clients = Clients(conversation)
        for step in steps:
            clients.do(step)
        clients.wait()
        for topic in TOPICS:
            for index in range(PARTITIONS):
                read_back(conversation, conversation.names.prefix + topic, index)
        conversation.answers = count_from(conversation.names.start_offset, conversation.answers)

    pair.check("\n".join(["test_random_records", *map(repr, steps)]), converse)
