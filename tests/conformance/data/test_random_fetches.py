"""Fetch requests at random, in any order: versions, sessions, epochs, and partitions that come and go.

CONFORMANCE_EXAMPLES is the number of conversations; with it, `--hypothesis-seed` chooses others than usual.
"""

from __future__ import annotations

import os
import uuid
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.fetching import END, TOPIC_IDS_SINCE, filled
from tests.conformance.requests import MAX_BYTES, fetch_fields, fetch_partition

EXAMPLES = os.environ.get("CONFORMANCE_EXAMPLES")
AT_RANDOM = settings(max_examples=int(EXAMPLES or 25), derandomize=EXAMPLES is None, database=None)
TOPICS = ("random-fetch-a", "random-fetch-b")
UNKNOWN_TOPIC = "random-fetch-unknown"
UNKNOWN_ID = uuid.UUID(int=7)
SESSIONS_SINCE = 7
LONG_WAIT, SHORT_WAIT = (60_000, 0), (3, 1)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    max_bytes: int = MAX_BYTES
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class Form(NamedTuple):
    """What requests of a client have in common."""

    version: int
    wait: tuple[int, int]
    """The maximum in ms, and the least number of bytes."""
    max_bytes: int
    isolation_level: int


class Ask(NamedTuple):
    """`session` counts back from the newest one; None is no session. `epoch` is added to that of the next request."""

    connection: int
    form: Form
    session: int | None
    epoch: int | str
    rows: list[Row]
    forgotten: list[tuple[str, int]]


PARTITIONS = st.sampled_from([0, 0, 0, 1, 1, 2])
VERSIONS = st.sampled_from([4, 6, 7, 8, 9, 10, 11, 12, 12, 12, 13, 14, 15, 16, 17, 17])
MAX_BYTES_OF_ANSWERS = st.sampled_from([MAX_BYTES, MAX_BYTES, 1])
ISOLATION_LEVELS = st.sampled_from([0, 0, 1])


def rows(topics: st.SearchStrategy[str], offsets: list[int]) -> st.SearchStrategy[Row]:
    return st.builds(
        Row,
        topics,
        PARTITIONS,
        st.sampled_from(offsets),
        st.sampled_from([MAX_BYTES] * 6 + [1, 0]),
        st.sampled_from([-1] * 8 + [0, 1]),
        st.sampled_from([-1] * 8 + [0, 1]),
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[Ask]:
    """Requests of few kinds, for fast paths are taken by those that repeat themselves.

    An offset beyond the end, or an unknown topic, is an error at once in Kafka; the gateway must be able to look it up.
    """
    if draw(st.booleans()):
        waits, topics, offsets = LONG_WAIT, st.sampled_from([*TOPICS * 3, UNKNOWN_TOPIC]), [0, 7, END, END, END + 1, -1]
    else:
        waits, topics, offsets = SHORT_WAIT, st.sampled_from(TOPICS), [0, 0, -1]
    asked_rows = rows(topics, offsets)
    forms = st.builds(Form, VERSIONS, st.just(waits), MAX_BYTES_OF_ANSWERS, ISOLATION_LEVELS)
    asks = st.builds(
        Ask,
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from(draw(st.lists(forms, min_size=1, max_size=3))),
        st.sampled_from([0, 0, 0, 0, 1, None]),
        st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, "full", "full", "final"]),
        st.one_of(st.just([]), st.lists(asked_rows, max_size=4)),
        st.one_of(st.just([]), st.lists(st.tuples(topics, PARTITIONS), max_size=3)),
    )
    return draw(st.lists(asks, min_size=1, max_size=16))


class Client:
    """Remembers the sessions and their epochs."""

    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self.connections = [conversation.client, conversation.connect()]
        self._sessions: list[int] = []
        self._epochs: dict[int, int] = {}

    def ask(self, ask: Ask) -> None:
        version = ask.form.version
        session, epoch = self._session(ask)
        rows: dict[str, list[dict[str, Any]]] = {}
        for topic, partition, offset, max_bytes, leader_epoch, fetched_epoch in ask.rows:
            absolute = offset + self._talk.names.start_offset
            row = fetch_partition(
                version, partition, absolute, max_bytes, current_leader_epoch=leader_epoch,
                last_fetched_epoch=fetched_epoch,
            )  # fmt: skip
            rows.setdefault(topic, []).append(row)
        forgotten: dict[str, list[int]] = {}
        for topic, partition in ask.forgotten:
            forgotten.setdefault(topic, []).append(partition)
        fields = fetch_fields(
            version, self._topics(version, rows), max_wait_ms=ask.form.wait[0], min_bytes=ask.form.wait[1],
            max_bytes=ask.form.max_bytes, isolation_level=ask.form.isolation_level, session=(session, epoch),
            forgotten=self._topics(version, forgotten),
        )  # fmt: skip
        connection = self.connections[ask.connection]
        answer = self._talk.receive("Fetch", version, connection.send("Fetch", version, **fields), connection)
        self._ungroup(self._talk.answers[-1]["Fetch"])
        if version >= SESSIONS_SINCE and not answer["error_code"]:
            self._remember(answer["session_id"], epoch)

    def _session(self, ask: Ask) -> tuple[int, int]:
        session = 0
        if ask.session is not None and self._sessions:
            session = self._sessions[-1 - ask.session % len(self._sessions)]
        if isinstance(ask.epoch, str):
            return session, 0 if ask.epoch == "full" else -1
        return session, self._epochs.get(session, 1 if session else -1) + ask.epoch

    def _remember(self, session: int, epoch: int) -> None:
        if session and session not in self._epochs:
            self._sessions.append(session)
        if session:
            self._epochs[session] = epoch + 1

    def _ungroup(self, noted: dict[str, Any]) -> None:
        """Kafka names a topic again for partitions that do not follow each other."""
        rows = [{**topic, "partitions": row} for topic in noted["responses"] for row in topic["partitions"]]
        noted["responses"] = sorted(rows, key=repr)

    def _topics(self, version: int, rows: dict[str, list[Any]]) -> list[dict[str, Any]]:
        if version < TOPIC_IDS_SINCE:
            return [{"topic": self._talk.names.prefix + name, "partitions": parts} for name, parts in rows.items()]
        return [{"topic_id": self._id(name), "partitions": parts} for name, parts in rows.items()]

    def _id(self, name: str) -> uuid.UUID:
        return UNKNOWN_ID if name == UNKNOWN_TOPIC else self._talk.topic_id(name)


@AT_RANDOM
@given(asked=conversations())
def test_random_fetches(pair: Pair, asked: list[Ask]) -> None:
    def converse(conversation: Conversation) -> None:
        for name in TOPICS:
            filled(conversation, name=name)
        client = Client(conversation)
        for ask in asked:
            client.ask(ask)

    pair.check("\n".join(["test_random_fetches", *map(repr, asked)]), converse)
