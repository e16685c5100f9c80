"""The gateway that each request is for: the leader of partitions, or the coordinator of groups or transactions.

A request for several gateways is split into one share for each gateway, and the answers to the shares are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from typing_extensions import TypeVar

from coordinator.fleet.messages import Member
from gateway.fan_out import Slices
from protocol.kafka.messages.message import Message

Request = TypeVar("Request")
Response = TypeVar("Response")
Topic = TypeVar("Topic")
Row = TypeVar("Row")
Request_co = TypeVar("Request_co", default=Message, covariant=True)
Response_co = TypeVar("Response_co", default=Message, covariant=True)

AT_ONCE = 100
"""The rows that are split in one step."""

Shares = dict[Member | None, Request]
"""None is this gateway itself. It also gets rows without a leader, because its handler knows the answer."""
Steps = Generator[None, None, Shares[Request]]
"""Each step does a part of the work; the last one returns the shares."""


class Leaders(Protocol):
    """The leaders of partitions, groups and transactional ids. None is this gateway itself, or no leader."""

    @property
    def epoch(self) -> int:
        """Increases when leaders change."""

    @property
    def others(self) -> Sequence[Member]: ...

    def of_partition(self, topic: str, partition: int) -> Member | None: ...

    def of_group(self, group_id: str) -> Member | None: ...

    def of_transactional_id(self, transactional_id: str) -> Member | None: ...


@dataclass(frozen=True)
class Route(Generic[Request_co, Response_co]):
    """The type counts as a route of any messages, so that APIs have it in a table: each gets only its own messages."""

    steps: Callable[[Request_co, int, Leaders], Steps[Request_co]]
    """Splits a request: (request, version, leaders)."""
    merge: Callable[[Sequence[Response_co]], Response_co]
    """Merges the answers to several shares."""
    only_with_lease: bool = False
    """A gateway without a lease may have been suspended: the client may have sent the same request to another gateway
    since. A request of an earlier transaction must not become a part of the next one. So connections from before an
    eviction carry no such request, either."""

    def split(self, request: Request_co, version: int, leaders: Leaders) -> Shares[Request_co]:  # type: ignore[misc]
        """All steps at once, for requests that are not large."""
        steps = self.steps(request, version, leaders)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                shares: Shares[Request_co] = end.value
                return shares

    async def split_in_slices(self, request: Request_co, version: int, leaders: Leaders) -> Shares[Request_co]:  # type: ignore[misc]
        """Other requests have their turn between the steps."""
        slices, steps = Slices(), self.steps(request, version, leaders)
        while True:
            await slices.pause()
            try:
                next(steps)
            except StopIteration as end:
                shares: Shares[Request_co] = end.value
                return shares


@dataclass(frozen=True)
class Asked(Generic[Request, Topic, Row]):
    """Where a request has its topics, their names, and their partitions."""

    topics: Callable[[Request], list[Topic]]
    name: Callable[[Topic], str]
    rows: Callable[[Topic], list[Row]]
    index: Callable[[Row], int]
    with_topics: Callable[[Request, list[Topic]], Request]
    with_rows: Callable[[Topic, list[Row]], Topic]

    def split(self, request: Request, _version: int, leaders: Leaders) -> Steps[Request]:
        topics = self.topics(request)
        found: set[Member | None] = set()
        for topic in topics:
            name = self.name(topic)
            for rows in _in_steps(self.rows(topic)):
                found.update(leaders.of_partition(name, self.index(row)) for row in rows)
                yield
        if len(found) <= 1:
            return dict.fromkeys(found or {None}, request)
        shares: dict[Member | None, list[Topic]] = {}
        for topic in topics:
            of_topic: dict[Member | None, list[Row]] = {}
            for rows in _in_steps(self.rows(topic)):
                for row in rows:
                    of_topic.setdefault(leaders.of_partition(self.name(topic), self.index(row)), []).append(row)
                yield
            for leader, mine in of_topic.items():
                shares.setdefault(leader, []).append(self.with_rows(topic, mine))
        return {leader: self.with_topics(request, share) for leader, share in shares.items()}


@dataclass(frozen=True)
class Answered(Generic[Response, Topic, Row]):
    """Where a response has its topics, their keys, and their partitions."""

    topics: Callable[[Response], list[Topic]]
    key: Callable[[Topic], object]
    rows: Callable[[Topic], list[Row]]
    with_topics: Callable[[Response, list[Topic]], Response]

    def merge(self, responses: Sequence[Response]) -> Response:
        topics: dict[object, Topic] = {}
        for topic in concatenated(responses, self.topics):
            known = topics.setdefault(self.key(topic), topic)
            if known is not topic:
                self.rows(known).extend(self.rows(topic))
        return self.with_topics(responses[0], list(topics.values()))


@dataclass(frozen=True)
class AskedByKey(Generic[Request, Row]):
    """Where a request has its rows, and the key of each."""

    rows: Callable[[Request], list[Row]]
    key: Callable[[Row], str]
    leader: Callable[[Leaders, str], Member | None]
    with_rows: Callable[[Request, list[Row]], Request]

    def split(self, request: Request, _version: int, leaders: Leaders) -> Steps[Request]:
        rows: dict[Member | None, list[Row]] = {}
        for some in _in_steps(self.rows(request)):
            for row in some:
                rows.setdefault(self.leader(leaders, self.key(row)), []).append(row)
            yield
        if len(rows) <= 1:
            return dict.fromkeys(rows or {None: []}, request)
        return {leader: self.with_rows(request, mine) for leader, mine in rows.items()}


def _in_steps(rows: list[Row]) -> list[list[Row]]:
    return [rows] if len(rows) <= AT_ONCE else [rows[at : at + AT_ONCE] for at in range(0, len(rows), AT_ONCE)]


def concatenated(messages: Iterable[Response], rows: Callable[[Response], list[Row]]) -> list[Row]:
    return [row for message in messages for row in rows(message)]
