"""Python source that is written line by line, and compiled."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from protocol.kafka.schemas.schema import Field

FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
"""Types of a fixed size, with their `struct` codes."""


class Source:
    """The body of a function, with the objects that it refers to."""

    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = names
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def add(self, *lines: str) -> None:
        self._lines += ["    " * self._depth + line for line in lines]

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def local(self) -> str:
        """A new, unique name."""
        self._count += 1
        return f"v{self._count}"

    def refer(self, value: Any) -> str:
        """A name for an object."""
        name = self.local()
        self.names[name] = value
        return name

    def compiled(self, function: str, file: str) -> Any:
        exec(compile("\n".join(self._lines), file, "exec"), self.names)
        return self.names[function]


def fixed_format(fields: Iterable[Field]) -> struct.Struct:
    """The `struct` format of consecutive fields that have a fixed size."""
    return struct.Struct(">" + "".join(FORMATS[field.kind] for field in fields))


def in_runs(fields: Iterable[Field]) -> list[list[Field]]:
    """Consecutive fields of a fixed size together, every other field alone."""
    runs: list[list[Field]] = []
    for field in fields:
        if is_fixed(field) and runs and is_fixed(runs[-1][0]):
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def is_fixed(field: Field) -> bool:
    return field.kind in FORMATS and not field.is_array
