"""Requests at random about two groups of at most one member each: its life, its commits and those of others."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.data.test_random_fetches import AT_RANDOM
from tests.conformance.groups.test_groups import NOBODY, fetch, heartbeat, join, leave, new_group, sync

TOPICS = ("random-groups-a", "random-groups-b")
UNKNOWN_TOPIC = "random-groups-unknown"
MEMBER_ID_REQUIRED = 79
LAST_VERSION = {"join": 9, "sync": 5, "beat": 4, "leave": 5, "fetch": 9, "delete": 2}


class Act(NamedTuple):
    """Something that is no commit. `generation` is added to the member's."""

    kind: str
    connection: int
    group: int
    version: int
    is_member: bool
    generation: int
    protocol: str


class Commit(NamedTuple):
    connection: int
    group: int
    version: int
    who: str
    """Nobody in particular, the member, or one that the group does not know."""
    generation: int
    rows: tuple[tuple[str, int], ...]
    offsets: list[int]
    metadata: str | None
    waits: bool
    """For the answer, before the next request."""


CONNECTIONS, GROUPS, GENERATIONS = st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 0, 1]), [0] * 8 + [1, -1]
ACTS = st.builds(
    Act,
    st.sampled_from(["join"] * 4 + ["sync", "beat", "beat", "leave", "fetch", "fetch", "delete"]),
    CONNECTIONS,
    GROUPS,
    st.integers(0, 9),
    st.sampled_from([True] * 8 + [False]),
    st.sampled_from(GENERATIONS),
    st.sampled_from(["range", "range", "other"]),
)
ROWS = st.lists(
    st.tuples(st.sampled_from([*TOPICS * 5, UNKNOWN_TOPIC]), st.sampled_from([0, 0, 0, 0, 1, 1, 2])),
    min_size=1, max_size=3, unique=True,
).map(tuple)  # fmt: skip


@st.composite
def conversations(draw: st.DrawFn) -> list[Act | Commit]:
    """Commits of few kinds, for a fast path is taken by those that repeat themselves."""
    commits = st.builds(
        Commit,
        CONNECTIONS,
        GROUPS,
        st.sampled_from(draw(st.lists(st.integers(1, 9), min_size=1, max_size=2))),
        st.sampled_from(["nobody", "member", "member", "member", "stranger"]),
        st.sampled_from(GENERATIONS),
        st.sampled_from(draw(st.lists(ROWS, min_size=1, max_size=2))),
        st.lists(st.sampled_from([0, 5, 7, 2**40, -1]), min_size=3, max_size=3),
        st.sampled_from(["", "", "m", "n", None, "m" * 5000]),
        st.booleans(),
    )
    kinds: dict[str, st.SearchStrategy[Any]] = {"act": ACTS, "commit": commits}
    steps = st.sampled_from(["act", "commit"]).flatmap(kinds.__getitem__)
    return draw(st.lists(steps, min_size=6, max_size=30))


class Group:
    """A group, and what its member remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.is_member = False
        self.generation = 0


class Clients:
    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self.groups = [Group(new_group(conversation)) for _ in range(2)]
        self._connections = [conversation.client, conversation.connect()]
        self._unanswered: list[tuple[int, int, int]] = []
        """Of commits: the connection, version and correlation id."""

    def do(self, step: Act | Commit) -> None:
        if isinstance(step, Act) or any(step.connection != sent[0] for sent in self._unanswered):
            self.wait()
        self._talk.client = self._connections[step.connection]
        if isinstance(step, Commit):
            self._commit(step, self.groups[step.group])
        else:
            self._act(step, self.groups[step.group])

    def wait(self) -> None:
        """For the answers to all commits."""
        for connection, version, sent in self._unanswered:
            self._talk.receive("OffsetCommit", version, sent, self._connections[connection])
        self._unanswered.clear()

    def _act(self, act: Act, group: Group) -> None:
        talk, version = self._talk, min(act.version, LAST_VERSION.get(act.kind, 0))
        member_id = group.member_id if act.is_member else NOBODY
        generation = group.generation + act.generation
        match act.kind:
            case "join":
                self._join(version, group, member_id, act.protocol)
            case "sync":
                named = {"protocol_name": act.protocol} if version >= 5 else {}
                sync(talk, version, group.name, member_id, generation, **named)
            case "beat":
                heartbeat(talk, version, group.name, member_id, generation)
            case "leave":
                leave(talk, version, group.name, member_id)
                if act.is_member:
                    group.member_id, group.is_member = "", False
            case "fetch":
                named_topics = None if act.generation < 0 and version >= 2 else self._names(*TOPICS, UNKNOWN_TOPIC)
                fetch(talk, version or 1, group.name, named_topics)
            case "delete":
                talk.call("DeleteGroups", version, groups_names=[group.name])

    def _join(self, version: int, group: Group, member_id: str, protocol: str) -> None:
        protocols = [{"name": protocol, "metadata": b""}]
        answer = join(self._talk, version, group.name, member_id, protocols=protocols)
        if member_id == group.member_id and answer["error_code"] in {0, MEMBER_ID_REQUIRED}:
            group.member_id, group.is_member = answer["member_id"], not answer["error_code"]
            group.generation = answer["generation_id"]

    def _names(self, *topics: str) -> list[str]:
        return [self._talk.names.prefix + topic for topic in topics]

    def _commit(self, commit: Commit, group: Group) -> None:
        version = commit.version
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in zip(commit.rows, commit.offsets, strict=False):
            row = {
                "partition_index": partition, "committed_offset": offset, "committed_metadata": commit.metadata,
                **({"commit_timestamp": -1} if version == 1 else {}),
                **({"committed_leader_epoch": 0} if version >= 6 else {}),
            }  # fmt: skip
            topics.setdefault(self._talk.names.prefix + topic, []).append(row)
        member_id = {"nobody": "", "member": group.member_id, "stranger": NOBODY}[commit.who]
        generation = -1 if commit.who == "nobody" else group.generation + commit.generation
        sent = self._talk.client.send(
            "OffsetCommit", version, group_id=group.name, generation_id_or_member_epoch=generation,
            member_id=member_id, topics=[{"name": name, "partitions": rows} for name, rows in topics.items()],
            **({"retention_time_ms": -1} if 2 <= version <= 4 else {}),
            **({"group_instance_id": None} if version >= 7 else {}),
        )  # fmt: skip
        self._unanswered.append((commit.connection, version, sent))
        if commit.waits:
            self.wait()


@AT_RANDOM
@given(steps=conversations())
def test_random_groups(pair: Pair, steps: list[Act | Commit]) -> None:
    def converse(conversation: Conversation) -> None:
        for topic in TOPICS:
            conversation.topic(topic, partitions=2)
        clients = Clients(conversation)
        for step in steps:
            clients.do(step)
        clients.wait()
        for group in clients.groups:
            fetch(conversation, 8, group.name, None)
            leave(conversation, 0, group.name, group.member_id)

    pair.check("\n".join(["test_random_groups", *map(repr, steps)]), converse)
