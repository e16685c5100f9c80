"""Which gateway each request is for: by leaders of partitions, and coordinators of groups and transactions.

A request that names several is split, one share for each gateway, and the answers to the shares are merged. Fetch has
no route here (see `forwarding/forwarded_fetch`): its answers are waited for differently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from coordinator.fleet.messages import Member

Request = Any
Response = Any
Shares = dict[Member | None, Request]
"""None is this gateway itself; also for what nobody leads, because its handler knows what to answer."""


class Leaders(Protocol):
    """Of partitions, groups and transactional ids; None is this gateway itself, or nobody."""

    @property
    def epoch(self) -> int:
        """Rises when leaders change."""

    @property
    def others(self) -> Sequence[Member]: ...

    def of_partition(self, topic: str, partition: int) -> Member | None: ...

    def of_group(self, group_id: str) -> Member | None: ...

    def of_transactional_id(self, transactional_id: str) -> Member | None: ...


class Route(NamedTuple):
    split: Callable[[Request, int, Leaders], Shares]
    """(request, version, leaders)."""
    merge: Callable[[Sequence[Response]], Response]
    """Of the answers to several shares."""
    only_with_lease: bool = False
    """Without a lease a gateway may have slept: what it read before, the client has perhaps sent elsewhere since. If
    that is of a transaction, it must not be taken for a part of the next one."""


class _Rows(NamedTuple):
    """The names of the fields in which a message has its topics, their names, and their partitions."""

    topics: str
    name: str
    partitions: str


def _by_partition(asked: _Rows, number: str | None, answered: _Rows) -> Route:
    """`number` is the field of a row that holds the partition; None if the row is the number."""

    def split(request: Request, version: int, leaders: Leaders) -> Shares:
        topics = getattr(request, asked.topics)
        found = {
            leaders.of_partition(getattr(topic, asked.name), row if number is None else getattr(row, number))
            for topic in topics
            for row in getattr(topic, asked.partitions)
        }
        if len(found) <= 1:
            return dict.fromkeys(found or {None}, request)
        rows: dict[Member | None, dict[int, list[Any]]] = {}
        for position, topic in enumerate(topics):
            for row in getattr(topic, asked.partitions):
                index = row if number is None else getattr(row, number)
                leader = leaders.of_partition(getattr(topic, asked.name), index)
                rows.setdefault(leader, {}).setdefault(position, []).append(row)
        return {
            leader: _with(
                request, asked.topics, [_with(topics[at], asked.partitions, mine) for at, mine in share.items()]
            )
            for leader, share in rows.items()
        }

    def merge(responses: Sequence[Response]) -> Response:
        topics: dict[object, Any] = {}
        for topic in _concatenated(responses, answered.topics):
            known = topics.setdefault(getattr(topic, "topic_id", None) or getattr(topic, answered.name), topic)
            if known is not topic:
                getattr(known, answered.partitions).extend(getattr(topic, answered.partitions))
        return _with(responses[0], answered.topics, list(topics.values()))

    return Route(split, merge)


def _markers_split(request: Request, _version: int, leaders: Leaders) -> Shares:
    """WriteTxnMarkers names partitions below topics below markers."""
    by_leader: dict[Member | None, list[Any]] = {}
    for marker in request.markers:
        shares = _MARKED_PARTITIONS.split(marker, _version, leaders)
        for leader, share in shares.items():
            by_leader.setdefault(leader, []).append(share)
    if len(by_leader) <= 1:
        return dict.fromkeys(by_leader or {None: []}, request)
    return {leader: _with(request, "markers", markers) for leader, markers in by_leader.items()}


def _markers_merged(responses: Sequence[Response]) -> Response:
    by_producer: dict[int, list[Any]] = {}
    for result in _concatenated(responses, "markers"):
        by_producer.setdefault(result.producer_id, []).append(result)
    return _with(responses[0], "markers", [_MARKED_PARTITIONS.merge(results) for results in by_producer.values()])


def _by_group(request: Request, _version: int, leaders: Leaders) -> Shares:
    return {leaders.of_group(request.group_id): request}


def _by_transactional_id(request: Request, _version: int, leaders: Leaders) -> Shares:
    """Any gateway gives an idempotent producer its id."""
    name = request.transactional_id
    return {None if name is None else leaders.of_transactional_id(name): request}


def _of_group(leaders: Leaders, group_id: str) -> Member | None:
    return leaders.of_group(group_id)


def _of_transactional_id(leaders: Leaders, transactional_id: str) -> Member | None:
    return leaders.of_transactional_id(transactional_id)


def _by_keys(
    asked: str, answered: str, leader_of: Callable[[Leaders, str], Member | None], key: Callable[[Any], str] = str
) -> Route:
    """The rows `asked` each name a key, and those `answered` are about one."""

    def split(request: Request, _version: int, leaders: Leaders) -> Shares:
        rows: dict[Member | None, list[Any]] = {}
        for row in getattr(request, asked):
            rows.setdefault(leader_of(leaders, key(row)), []).append(row)
        if len(rows) <= 1:
            return dict.fromkeys(rows or {None: []}, request)
        return {leader: _with(request, asked, mine) for leader, mine in rows.items()}

    return Route(split, lambda responses: _with(responses[0], answered, _concatenated(responses, answered)))


_OFFSETS_OF_GROUPS = _by_keys("groups", "groups", _of_group, lambda row: str(row.group_id))
_BATCHED_TRANSACTIONS = _by_keys(
    "transactions", "results_by_transaction", _of_transactional_id, lambda row: str(row.transactional_id)
)


def _by_group_or_groups(request: Request, version: int, leaders: Leaders) -> Shares:
    """OffsetFetch names several groups from v8 on."""
    return (_OFFSETS_OF_GROUPS.split if version >= 8 else _by_group)(request, version, leaders)


def _by_transactions(request: Request, version: int, leaders: Leaders) -> Shares:
    """AddPartitionsToTxn names several transactions from v4 on."""
    if version < 4:
        return {leaders.of_transactional_id(request.v3_and_below_transactional_id): request}
    return _BATCHED_TRANSACTIONS.split(request, version, leaders)


def _by_all(request: Request, _version: int, leaders: Leaders) -> Shares:
    """Each gateway knows a part of the answer."""
    return dict.fromkeys([None, *leaders.others], request)


def _listed(field: str) -> Callable[[Sequence[Response]], Response]:
    def merge(responses: Sequence[Response]) -> Response:
        first = next((response for response in responses if response.error_code), responses[0])
        return _with(first, field, _concatenated(responses, field))

    return merge


def _log_dirs(responses: Sequence[Response]) -> Response:
    """There is one directory, of which each tells what it leads."""
    first = next((response for response in responses if response.error_code), responses[0])
    results = _concatenated(responses, "results")
    if first.error_code or not results:
        return first
    return _with(first, "results", [_with(results[0], "topics", _concatenated(results, "topics"))])


def _only(responses: Sequence[Response]) -> Response:
    return responses[0]


def _with(message: Any, field: str, value: Any) -> Any:
    """A copy with another value in one field."""
    changed = copy.copy(message)
    setattr(changed, field, value)
    return changed


def _concatenated(messages: Iterable[Any], field: str) -> list[Any]:
    return [row for message in messages for row in getattr(message, field)]


PRODUCE = _by_partition(
    _Rows("topic_data", "name", "partition_data"), "index", _Rows("responses", "name", "partition_responses")
)
BY_PARTITION_INDEX = _by_partition(
    _Rows("topics", "name", "partitions"), "partition_index", _Rows("topics", "name", "partitions")
)
OFFSET_FOR_LEADER_EPOCH = _by_partition(
    _Rows("topics", "topic", "partitions"), "partition", _Rows("topics", "topic", "partitions")
)
DESCRIBE_PRODUCERS = _by_partition(
    _Rows("topics", "name", "partition_indexes"), None, _Rows("topics", "name", "partitions")
)
_MARKED_PARTITIONS = DESCRIBE_PRODUCERS
"""The rows of one marker."""
WRITE_TXN_MARKERS = Route(_markers_split, _markers_merged)
BY_GROUP = Route(_by_group, _only)
OFFSET_FETCH = Route(_by_group_or_groups, _OFFSETS_OF_GROUPS.merge)
DESCRIBE_GROUPS = _by_keys("groups", "groups", _of_group)
CONSUMER_GROUP_DESCRIBE = _by_keys("group_ids", "groups", _of_group)
DELETE_GROUPS = _by_keys("groups_names", "results", _of_group)
LIST_GROUPS = Route(_by_all, _listed("groups"))
BY_TRANSACTIONAL_ID = Route(_by_transactional_id, _only, only_with_lease=True)
ADD_PARTITIONS_TO_TXN = Route(_by_transactions, _BATCHED_TRANSACTIONS.merge, only_with_lease=True)
TXN_OFFSET_COMMIT = Route(_by_group, _only, only_with_lease=True)
DESCRIBE_TRANSACTIONS = _by_keys("transactional_ids", "transaction_states", _of_transactional_id)
LIST_TRANSACTIONS = Route(_by_all, _listed("transaction_states"))
DESCRIBE_LOG_DIRS = Route(_by_all, _log_dirs)
