"""Counts the values in a message: large messages are encoded in another thread, those with many rows or bytes."""

from __future__ import annotations

import sys
from functools import cache

from protocol.kafka.buffers import SharedItems
from protocol.kafka.messages.message import Message
from protocol.kafka.schemas.schema import Field, schema_of

ROW_BYTES = 2 * 1024
"""So many bytes of a response take about as long as a row: they are copied."""
_Counted = tuple[tuple[str, int, "_Counted"], ...]
"""The fields that count, or contain some that do: name, the length that counts as one (0 for a single struct), and the
fields of its structs."""


def has_more_rows(kind: type[Message], message: object, limit: int) -> bool:
    """Whether the arrays of a message have more than `limit` values, on all levels; stops counting above it. Long
    bytes of a response count, too."""
    return count_values(kind, message, limit) > limit


def count_values(kind: type[Message], message: object, limit: int = sys.maxsize) -> int:
    """The number of values in the arrays of a message, on all levels; or some number above `limit`."""
    count, unseen = 0, [(_counted(kind.__name__), message)]
    while unseen and count <= limit:
        fields, struct_ = unseen.pop()
        for name, unit, inner in fields:
            value = getattr(struct_, name, None)
            if value is None:
                continue
            if unit:
                count += len(value) // unit
                if count > limit:
                    return count
            if inner and type(value) is not SharedItems:  # their encoding is known, or soon is
                unseen += [(inner, each) for each in value] if unit else [(inner, value)]
    return count


@cache
def _counted(name: str) -> _Counted:
    schema = schema_of(name)
    return _counted_of(schema.fields, schema.is_response)


def _counted_of(fields: tuple[Field, ...], is_response: bool) -> _Counted:
    found = ((each.name, _unit(each, is_response), _counted_of(each.fields, is_response)) for each in fields)
    return tuple((name, unit, inner) for name, unit, inner in found if unit or inner)


def _unit(field: Field, is_response: bool) -> int:
    if field.is_array:
        return 1
    return ROW_BYTES if is_response and field.kind == "bytes" else 0
