"""Rows of a trial as sorted text, and the differences between two sides."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Rows = Mapping[str, Iterable[Sequence[Any]]]
"""Results of a trial: name of an attempt → its rows, in any order."""
MAX_SHOWN = 5


def canonical(rows: Rows) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(_plain(tuple(row))) for row in each) for name, each in rows.items()}


def differences(kafka: Mapping[str, Sequence[str]], gateway: Mapping[str, Sequence[str]]) -> list[str]:
    """One line for each row that only one side has, at most MAX_SHOWN for each trial and side."""
    lines = []
    for name in {**kafka, **gateway}:
        left, right = Counter(kafka.get(name, ())), Counter(gateway.get(name, ()))
        lines += [f"{name}: only Kafka has {row}" for row in sorted((left - right).elements())[:MAX_SHOWN]]
        lines += [f"{name}: only the gateway has {row}" for row in sorted((right - left).elements())[:MAX_SHOWN]]
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
