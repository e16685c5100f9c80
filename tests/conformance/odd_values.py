"""Requests in which one field at a time has an odd value, by Kafka's schemas, and what both servers make of them."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.conformance.conversation import AnsweredBadlyError, Conversation, Pair
from tests.support.raw_client import message_class

TWICE = "twice"
"""Instead of a value: the first element of the array is there once more."""
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ODD: dict[str, Sequence[Any]] = {
    **{kind: (-2, -1, 0, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))) for kind, bits in _BITS.items()},
    "string": ("", " ", "no-such", "x" * 300),
    "bytes": (b"", b"\xff" * 9),
    "records": (b"", b"\xff" * 9),
    "uuid": (uuid.UUID(int=0), uuid.UUID(int=99)),
    "float64": (float("inf"), -1.0, 0.0, 0.5, 2.0**63, 2.0**64),
    "bool": (True, False),
}

Fields = dict[str, Any]


@dataclass(frozen=True)
class Odd:
    """A request that is in order: `make` prepares what it names, and returns its fields, for each change anew."""

    api: str
    version: int
    make: Callable[[Conversation], Fields]
    without: Sequence[str] = ()
    """Patterns of the changes that are left out: Kafka never answers, or ends."""
    then: Callable[[Conversation, Fields], None] | None = None
    """Asks for the effect."""
    tidy: Callable[[Fields], None] | None = None
    """Hides from the noted response what each server chooses."""


@dataclass(frozen=True)
class Change:
    path: tuple[str | int, ...]
    value: Any

    def __str__(self) -> str:
        shown = f"{self.value[:3]}..." if self.value == "x" * 300 else repr(self.value)
        return f"{'.'.join(map(str, self.path))} = {shown}"

    def applied(self, fields: Fields) -> Fields:
        changed = copy.deepcopy(fields)
        target: Any = changed
        for step in self.path[:-1]:
            target = target[step]
        last = self.path[-1]
        target[last] = [*target[last], copy.deepcopy(target[last][0])] if self.value is TWICE else self.value
        return changed


def check(pair: Pair, request: pytest.FixtureRequest, odd: Odd) -> None:
    name = f"{request.node.path.stem}::{request.node.name}"
    pair.check(name, lambda conversation: _ask_all(conversation, odd))


def _ask_all(conversation: Conversation, odd: Odd) -> None:
    schema, noted = message_class(odd.api, "Request")._struct, []
    for change in _changes(schema, odd.version, _completed(schema, odd.version, odd.make(conversation))):
        if not any(fnmatchcase(str(change), pattern) for pattern in odd.without):
            fields = change.applied(_completed(schema, odd.version, odd.make(conversation)))
            conversation.answers = []  # without those of the preparation
            _ask(conversation, odd, fields)
            noted.append({str(change): [*conversation.answers]})
    conversation.answers = noted


def _ask(conversation: Conversation, odd: Odd, fields: Fields) -> None:
    with suppress(AnsweredBadlyError):
        conversation.call(odd.api, odd.version, **fields)
        if odd.tidy is not None:
            odd.tidy(conversation.answers[-1][odd.api])
        if odd.then is not None:
            odd.then(conversation, fields)
    try:
        conversation.client.call("ApiVersions", 0)
        conversation.say("open")
    except Exception:  # of any kind: the next request needs a connection
        conversation.say("closed")
        conversation.client = conversation.connect()


def _parts(field: Any, version: int) -> list[Any]:
    return [*field.untagged_fields(version), *field.tagged_fields(version)._fields]


def _completed(field: Any, version: int, values: Fields) -> Fields:
    """With the defaults of what is missing, and without what this version lacks."""
    return {part.name: _complete(part, version, values) for part in _parts(field, version)}


def _complete(part: Any, version: int, values: Fields) -> Any:
    if part.name not in values:
        if part.is_array():
            return None if part.nullable_for_version_q(version) else []
        return None if part.is_struct() else part.default
    value = values[part.name]
    if value is not None and part.is_array() and part.array_of.is_struct():
        return [_completed(part.array_of, version, item) for item in value]
    return value


def _changes(field: Any, version: int, values: Fields, path: tuple[str | int, ...] = ()) -> Iterator[Change]:
    for part in _parts(field, version):
        here, value = (*path, part.name), values[part.name]
        if value is not None and part.nullable_for_version_q(version):
            yield Change(here, None)
        if part.is_array():
            yield from _changes_of_array(part, version, value, here)
        elif not part.is_struct():
            yield from _changes_of_value(part, value, here)


def _changes_of_array(part: Any, version: int, value: Any, path: tuple[str | int, ...]) -> Iterator[Change]:
    if value != []:
        yield Change(path, [])
    if value:
        yield Change(path, TWICE)
        if part.array_of.is_struct():
            yield from _changes(part.array_of, version, value[0], (*path, 0))
        else:
            yield from _changes_of_value(part.array_of, value[0], (*path, 0))


def _changes_of_value(part: Any, value: Any, path: tuple[str | int, ...]) -> Iterator[Change]:
    for odd in _ODD.get(part.type_str, ()):
        if odd != value:
            yield Change(path, odd)
