"""The gateway that each request is for: the leader of partitions, or the coordinator of groups or transactions.

A request for several gateways is split into one share for each gateway, and the answers to the shares are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from typing_extensions import TypeVar

from coordinator.fleet.messages import Member
from protocol.kafka.messages.message import Message

Request = TypeVar("Request")
Response = TypeVar("Response")
Topic = TypeVar("Topic")
Row = TypeVar("Row")
Request_co = TypeVar("Request_co", default=Message, covariant=True)
Response_co = TypeVar("Response_co", default=Message, covariant=True)

Shares = dict[Member | None, Request]
"""None is this gateway itself. It also gets rows without a leader, because its handler knows the answer."""


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

    split: Callable[[Request_co, int, Leaders], Shares[Request_co]]
    """(request, version, leaders)."""
    merge: Callable[[Sequence[Response_co]], Response_co]
    """Merges the answers to several shares."""
    only_with_lease: bool = False
    """A gateway without a lease may have been suspended: the client may have sent the same request to another gateway
    since. A request of an earlier transaction must not become a part of the next one. So connections from before an
    eviction carry no such request, either."""


@dataclass(frozen=True)
class Asked(Generic[Request, Topic, Row]):
    """Where a request has its topics, their names, and their partitions."""

    topics: Callable[[Request], list[Topic]]
    name: Callable[[Topic], str]
    rows: Callable[[Topic], list[Row]]
    index: Callable[[Row], int]
    with_topics: Callable[[Request, list[Topic]], Request]
    with_rows: Callable[[Topic, list[Row]], Topic]

    def split(self, request: Request, _version: int, leaders: Leaders) -> Shares[Request]:
        topics = self.topics(request)
        found = {
            leaders.of_partition(self.name(topic), self.index(row)) for topic in topics for row in self.rows(topic)
        }
        if len(found) <= 1:
            return dict.fromkeys(found or {None}, request)
        rows: dict[Member | None, dict[int, list[Row]]] = {}
        for position, topic in enumerate(topics):
            for row in self.rows(topic):
                leader = leaders.of_partition(self.name(topic), self.index(row))
                rows.setdefault(leader, {}).setdefault(position, []).append(row)
        return {
            leader: self.with_topics(request, [self.with_rows(topics[at], mine) for at, mine in share.items()])
            for leader, share in rows.items()
        }


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

    def split(self, request: Request, _version: int, leaders: Leaders) -> Shares[Request]:
        rows: dict[Member | None, list[Row]] = {}
        for row in self.rows(request):
            rows.setdefault(self.leader(leaders, self.key(row)), []).append(row)
        if len(rows) <= 1:
            return dict.fromkeys(rows or {None: []}, request)
        return {leader: self.with_rows(request, mine) for leader, mine in rows.items()}


def concatenated(messages: Iterable[Response], rows: Callable[[Response], list[Row]]) -> list[Row]:
    return [row for message in messages for row in rows(message)]
