"""Values of configurations as Kafka's brokers read them: text in, canonical text out, or InvalidValue."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import IntEnum

Parse = Callable[[str], str]
"""Returns the value as brokers show it. Raises InvalidValue."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MAX_DIGITS = 40
_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's trim() removes."""
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)
_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_REPLICA = re.compile(r"(\d+:\d+)?", re.ASCII)
_MESSAGE_FORMAT = re.compile(
    r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.\d)(\.\d+)*(-IV\d)?", re.ASCII
)


class ConfigType(IntEnum):
    """The types in DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class InvalidValue(ValueError):
    """``shown`` is the invalid value, or the invalid part of it."""

    def __init__(self, shown: str, reason: str) -> None:
        super().__init__(reason)
        self.shown = shown


def parse_number(text: str, highest: int) -> int | None:
    """An optional sign, and decimal digits of any script, as Java reads them; None for any other text."""
    number = int(text) if _WHOLE.fullmatch(text) and len(text) <= MAX_DIGITS else None
    return number if number is not None and -highest - 1 <= number <= highest else None


def whole(kind: ConfigType, low: int | None = None, high: int | None = None) -> Parse:
    """Reads an INT or LONG within bounds."""
    limit = INT_MAX if kind is ConfigType.INT else LONG_MAX

    def parse(text: str) -> str:
        number = parse_number(text.strip(_BLANKS), limit)
        if number is None:
            raise InvalidValue(text, f"Not a number of type {kind.name}")
        _check_bounds(number, low, high)
        return str(number)

    return parse


def _check_bounds(number: float, low: float | None, high: float | None) -> None:
    if low is not None and not number >= low:
        raise InvalidValue(str(number), f"Value must be at least {low}")
    if high is not None and not number <= high:
        raise InvalidValue(str(number), f"Value must be no more than {high}")


def gzip_level(text: str) -> str:
    level = whole(ConfigType.INT)(text)
    if level != "-1" and not 1 <= int(level) <= 9:
        raise InvalidValue(level, "Value must be between 1 and 9 or equal to -1")
    return level


def ratio(text: str) -> str:
    trimmed = text.strip(_BLANKS)
    if not _DECIMAL.fullmatch(trimmed):
        raise InvalidValue(text, "Not a number of type DOUBLE")
    number = float(trimmed.rstrip("fFdD"))
    if math.isinf(number):
        raise InvalidValue(text, "Value must be no more than 1")
    _check_bounds(number, 0, 1)
    return str(number)


def boolean(text: str) -> str:
    value = text.strip(_BLANKS).lower()
    if value not in {"true", "false"}:
        raise InvalidValue(text, "Expected value to be either true or false")
    return value


def one_of(*allowed: str) -> Parse:
    def parse(text: str) -> str:
        value = text.strip(_BLANKS)
        if value not in allowed:
            raise InvalidValue(value, f"String must be one of: {', '.join(allowed)}")
        return value

    return parse


def list_of(*allowed: str) -> Parse:
    def parse(text: str) -> str:
        parts = _split(text)
        for part in parts:
            if part not in allowed:
                raise InvalidValue(part, f"String must be one of: {', '.join(allowed)}")
        return ",".join(parts)

    return parse


def throttled_replicas(name: str) -> Parse:
    def parse(text: str) -> str:
        parts = _split(text)
        if parts != ["*"] and not all(map(_REPLICA.fullmatch, parts)):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            raise InvalidValue(
                f"[{', '.join(parts)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format: {form}",
            )
        return ",".join(parts)

    return parse


def message_format(text: str) -> str:
    value = text.strip(_BLANKS)
    if not _MESSAGE_FORMAT.fullmatch(value):
        raise InvalidValue(value, f"Version {value} is not a valid version")
    return value


def _split(text: str) -> list[str]:
    trimmed = text.strip(_BLANKS)
    return _LIST_SEPARATOR.split(trimmed) if trimmed else []
