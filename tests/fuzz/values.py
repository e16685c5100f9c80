"""Random messages by Kafka's schemas, every version, encoded field by field."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.schema_values import encode, witness

MAX_ITEMS = 3
_TEXTS = ("", "t", "topic-1", "grüße", "x" * 130)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def encoded(message: Any, version: int, random: Random) -> bytes:
    """A random body."""
    return encode(message, version, _struct(witness(message), version, random))


def _struct(field: Any, version: int, random: Random) -> dict[str, Any]:
    parts = [*field.untagged_fields(version), *field.tagged_fields(version)._fields]
    return {part.name: _value(part, version, random) for part in parts}


def _value(field: Any, version: int, random: Random) -> Any:
    nullable = field.nullable_for_version_q(version) or (field.is_struct() and field.tag is not None)
    if nullable and random.random() < 0.3:
        return None
    if field.is_array():
        inner = field.array_of
        count = random.randint(0, MAX_ITEMS)
        if inner.is_struct():
            return [_struct(inner, version, random) for _ in range(count)]
        return [_simple(inner.type_str, random) for _ in range(count)]
    return _struct(field, version, random) if field.is_struct() else _simple(field.type_str, random)


def _simple(kind: str, random: Random) -> Any:
    if kind in _BITS:
        bits = _BITS[kind]
        small = random.random() < 0.7
        return random.randint(-1, 9) if small else random.getrandbits(bits) - (1 << (bits - 1))
    makers: dict[str, Callable[[], Any]] = {
        "uint16": lambda: random.getrandbits(16),
        "float64": random.random,
        "bool": lambda: random.random() < 0.5,
        "uuid": lambda: uuid.UUID(int=random.getrandbits(128) | 1),
        "string": lambda: random.choice(_TEXTS),
        "bytes": lambda: random.randbytes(random.randint(0, 9)),
        "records": lambda: random.randbytes(random.randint(0, 99)),
        "bitfield": lambda: {random.randint(0, 30)},
    }
    return makers[kind]()
