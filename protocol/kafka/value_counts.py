"""Counts the values in a message: large messages are encoded in another thread."""

from __future__ import annotations

import sys
from functools import cache

from protocol.kafka.buffers import SharedItems
from protocol.kafka.messages.message import Message
from protocol.kafka.schemas.schema import Field, schema_of

_Arrays = tuple[tuple[str, bool, "_Arrays"], ...]
"""The fields that are arrays, or contain arrays: name, whether the field is an array, and the fields of its structs."""


def has_more_rows(kind: type[Message], message: object, limit: int) -> bool:
    """Whether the arrays of a message have more than `limit` values, on all levels; stops counting above it."""
    return count_values(kind, message, limit) > limit


def count_values(kind: type[Message], message: object, limit: int = sys.maxsize) -> int:
    """The number of values in the arrays of a message, on all levels; or some number above `limit`."""
    count, unseen = 0, [(_arrays(kind.__name__), message)]
    while unseen and count <= limit:
        fields, struct_ = unseen.pop()
        for name, is_array, inner in fields:
            value = getattr(struct_, name, None)
            if value is None:
                continue
            if is_array:
                count += len(value)
                if count > limit:
                    return count
            if inner and type(value) is not SharedItems:  # their encoding is known, or soon is
                unseen += [(inner, each) for each in value] if is_array else [(inner, value)]
    return count


@cache
def _arrays(name: str) -> _Arrays:
    return _arrays_of(schema_of(name).fields)


def _arrays_of(fields: tuple[Field, ...]) -> _Arrays:
    found = ((field.name, field.is_array, _arrays_of(field.fields)) for field in fields)
    return tuple((name, is_array, inner) for name, is_array, inner in found if is_array or inner)
