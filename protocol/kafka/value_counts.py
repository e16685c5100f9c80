"""How much a message holds: what takes long to encode is encoded elsewhere."""

from __future__ import annotations

import sys
from functools import cache

from protocol.kafka.messages.message import Message
from protocol.kafka.schemas.schema import Field, schema_of

_Arrays = tuple[tuple[str, bool, "_Arrays"], ...]
"""Fields that are arrays, or hold some: name, whether it is one itself, and those of its structs."""


def has_more_rows(kind: type[Message], message: object, limit: int) -> bool:
    """Whether the arrays of a message hold more than so many values, all levels counted; stops when it knows."""
    return count_values(kind, message, limit) > limit


def count_values(kind: type[Message], message: object, limit: int = sys.maxsize) -> int:
    """How many values the arrays of a message hold, all levels counted; or some number beyond the limit."""
    count, unseen = 0, [(_arrays(kind.__name__), message)]
    while unseen and count <= limit:
        fields, struct_ = unseen.pop()
        for name, is_array, inner in fields:
            value = getattr(struct_, name, None)
            if value is None:
                continue
            if is_array:
                count += len(value)
            if inner:
                unseen += [(inner, each) for each in value] if is_array else [(inner, value)]
    return count


@cache
def _arrays(name: str) -> _Arrays:
    return _arrays_of(schema_of(name).fields)


def _arrays_of(fields: tuple[Field, ...]) -> _Arrays:
    found = ((field.name, field.is_array, _arrays_of(field.fields)) for field in fields)
    return tuple((name, is_array, inner) for name, is_array, inner in found if is_array or inner)
