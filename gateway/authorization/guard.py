"""The building blocks of guards.

A guard runs before the handler of an API, and before forwarding. It passes on those parts of a request that the client
has a right to, and adds its own answers for the rest to the response: the handler gets a request without denied parts.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from gateway.fan_out import Slices, sliced
from gateway.requests.call import Call, Guard, Handle
from gateway.requests.denials import DENIED
from gateway.requests.reply import Reply
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.value_counts import has_more_rows

Message = Any
Row = Any
"""A request or a response, or a row of one: guards access their fields by name."""

AT_ONCE = 100
"""Rows of a request that are checked without giving others their turn."""
LARGE_ROWS = 2_000
"""Refusals of requests with more rows, on all levels, are made in threads or in slices."""

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's texts."""


def may(call: Call, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    return call.context.policy.allows(operation, resource_type, name)


def may_cluster(call: Call, operation: AclOperation) -> bool:
    return may(call, operation, ResourceType.CLUSTER, CLUSTER_NAME)


async def topic_name(call: Call, topic_id: uuid.UUID | None) -> str | None:
    """None if there is no topic with this id. Raises PulsarError."""
    topics = call.cluster.topics
    name = topics.cached_name(topic_id)
    if name is not None:
        return name
    found = await topics.get_by_id(topic_id)
    return None if found is None else found.name


def nothing_needed(call: Call, handle: Handle) -> Reply:
    """No right is needed, or the handler itself checks the policy."""
    return handle(call)


def chain(*guards: Guard) -> Guard:
    """Guards that run one after the other."""
    first, *others = guards
    if not others:
        return first
    rest = chain(*others)
    return lambda call, handle: first(call, lambda passed: rest(passed, handle))


def needs(
    operation: AclOperation,
    resource_type: ResourceType,
    name: Callable[[Message], str],
    refuse: Callable[[Call[Any], ErrorCode], Message],
) -> Guard:
    """Requires one right for the whole request."""
    code = DENIED[resource_type]

    def guard(call: Call, handle: Handle) -> Reply:
        resource = name(call.request)
        if may(call, operation, resource_type, resource):
            return handle(call)
        call.count_denied(operation, resource_type, resource)
        return refusal(call, partial(refuse, call, code))

    return guard


def refusal(call: Call, make: Callable[[], Message]) -> Reply:
    """The answer to a request of which nothing is allowed. `make` may run in a thread."""
    if has_more_rows(type(call.request), call.request, LARGE_ROWS):
        return Reply.after(_made_in_thread(make))
    return Reply(make())


async def _made_in_thread(make: Callable[[], Message]) -> Reply:
    return Reply(await asyncio.to_thread(make))


async def made(make: Callable[[], Row], parts: int) -> Row:
    """One row of an answer. It is made in a thread if it has very many parts."""
    return await asyncio.to_thread(make) if parts > LARGE_ROWS else make()


def needs_cluster(operation: AclOperation, refuse: Callable[[Call[Any], ErrorCode], Message]) -> Guard:
    return needs(operation, ResourceType.CLUSTER, lambda _request: CLUSTER_NAME, refuse)


def _response(call: Call[Any], **fields: object) -> Message:
    response: Callable[..., Message] = call.api.response
    return response(**fields)


def with_error(call: Call, code: ErrorCode) -> Message:
    """A response that contains only its error."""
    return _response(call, error_code=code)


def with_error_and_text(call: Call, code: ErrorCode) -> Message:
    return _response(call, error_code=code, error_message=MESSAGES[code])


@dataclass(frozen=True)
class NeedsEach:
    """A guard: a right for each row of the request's field `asked`; denied rows are answered in the response's
    `answered`."""

    asked: str
    allows: Callable[[Call[Any], Row], bool]
    answered: str
    refuse: Callable[[Call[Any], Row], Row]
    _: KW_ONLY
    count: Callable[[Call[Any], Row], None] = lambda _call, _row: None
    """Counts the denial of a row that is refused in a thread."""
    parts: Callable[[Row], Sequence[object]] = lambda _row: ()
    """A row with many of them is refused in a thread, and rows with many of them altogether in slices."""
    once: Callable[[Row], Hashable] | None = None
    """Rows for which it returns the same are refused once, as Kafka does for some APIs."""
    error: Callable[[Message], int] | None = None
    """The handler is asked even if all rows are denied, and a response for which it returns an error has no rows."""

    def __call__(self, call: Call, handle: Handle) -> Reply:
        rows: Sequence[Row] = getattr(call.request, self.asked) or ()
        if len(rows) > AT_ONCE or sum(len(self.parts(row)) for row in rows) > LARGE_ROWS:
            return Reply.after(self._in_slices(call, handle, rows))
        allowed: list[Row] = []
        refused: list[Row] = []
        seen = set[Hashable]()
        for row in rows:
            if not self._is_refused_again(call, row, seen):
                self._check(call, row, allowed, refused)
        return self._answer(call, handle, allowed, refused)

    def _is_refused_again(self, call: Call, row: Row, seen: set[Hashable]) -> bool:
        return self.once is not None and not self.allows(call, row) and not is_new(self.once(row), seen)

    async def _in_slices(self, call: Call, handle: Handle, rows: Sequence[Row]) -> Reply:
        slices, allowed, refused, seen = Slices(), list[Row](), list[Row](), set[Hashable]()
        for row in rows:
            await slices.pause()
            if self._is_refused_again(call, row, seen):
                continue
            if len(self.parts(row)) <= LARGE_ROWS or self.allows(call, row):
                self._check(call, row, allowed, refused)
            else:
                self.count(call, row)
                refused.append(await asyncio.to_thread(self.refuse, call, row))
        return self._answer(call, handle, allowed, refused)

    def _check(self, call: Call, row: Row, allowed: list[Row], refused: list[Row]) -> None:
        if self.allows(call, row):
            allowed.append(row)
        else:
            self.count(call, row)
            refused.append(self.refuse(call, row))

    def _answer(self, call: Call, handle: Handle, allowed: list[Row], refused: list[Row]) -> Reply:
        if not refused:
            return handle(call)
        if not allowed and self.error is None:
            return Reply(_response(call, **{self.answered: refused}))

        def add_refused(response: Message) -> Message:
            if self.error is not None and self.error(response):
                return response
            return changed(response, self.answered, [*getattr(response, self.answered), *refused])

        return handle(call.asking(changed(call.request, self.asked, allowed))).then(add_refused)


def is_new(value: Hashable, seen: set[Hashable]) -> bool:
    """Whether the value is seen for the first time."""
    if value in seen:
        return False
    seen.add(value)
    return True


def showing(reply: Reply, field: str, shows: Callable[[Row], bool]) -> Reply:
    """Leaves out rows of the response. There may be tens of thousands, and each may need a decision by the ACLs."""

    async def shown(response: Message) -> Message:
        return changed(response, field, [row async for row in sliced(getattr(response, field)) if shows(row)])

    return reply.then_in_slices(shown)


def changing(
    reply: Reply, field: str, change: Callable[[Row], Row], more: Callable[[Message], Sequence[Row]] = lambda _: ()
) -> Reply:
    """Changes each row of the response, and adds `more` of them."""

    async def shown(response: Message) -> Message:
        rows = [change(row) async for row in sliced(getattr(response, field))]
        return changed(response, field, [*rows, *more(response)])

    return reply.then_in_slices(shown)


def changed(message: Message, field: str, value: object) -> Message:
    """A copy with another value in one field."""
    result = copy.copy(message)
    setattr(result, field, value)
    return result


@dataclass(frozen=True)
class TopicRows:
    """The field names with which a request names topics and partitions, and with which its response answers each."""

    operation: AclOperation
    asked: str
    answered: str
    topic: Callable[..., Row]
    partition: Callable[..., Row]
    name: str = "name"
    asked_partitions: str = "partitions"
    asked_index: str | None = "partition_index"
    """None if the element is the number itself."""
    partitions: str = "partitions"
    index: str = "partition_index"
    error: str = "error_code"

    def allows(self, call: Call, row: Row) -> bool:
        return may(call, self.operation, ResourceType.TOPIC, getattr(row, self.name))

    def refused(self, row: Row, code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> Row:
        """The answer to a row: the same error for all its partitions."""
        numbers = [
            each if self.asked_index is None else getattr(each, self.asked_index)
            for each in getattr(row, self.asked_partitions)
        ]
        partitions = [self.partition(**{self.index: number, self.error: code}) for number in numbers]
        return self.topic(**{self.name: getattr(row, self.name), self.partitions: partitions})

    def refuse_all(self, call: Call, code: ErrorCode) -> Message:
        rows = [self.refused(row, code) for row in getattr(call.request, self.asked) or ()]
        return _response(call, **{self.answered: rows})

    def _count(self, call: Call, row: Row) -> None:
        call.count_denied(self.operation, ResourceType.TOPIC, getattr(row, self.name))

    @property
    def guard(self) -> Guard:
        return self._guard()

    @property
    def guard_with_error(self) -> Guard:
        """The handler may refuse the whole request, also if all its topics are denied."""
        return self._guard(error=attrgetter("error_code"))

    def _guard(self, error: Callable[[Message], int] | None = None) -> Guard:
        return NeedsEach(
            self.asked, self.allows, self.answered, lambda _call, row: self.refused(row),
            count=self._count, parts=attrgetter(self.asked_partitions), error=error,
        )  # fmt: skip
