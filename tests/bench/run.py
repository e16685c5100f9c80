"""The results of a run: rows of figures by part and case, with medians of the rounds."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Value = float | str | None
_Key = tuple[str, str, str]
"""Part, case and target."""


@dataclass
class Row:
    """One measurement of one target, repeated in rounds."""

    part: str
    case: str
    target: str
    rounds: list[dict[str, float]] = field(default_factory=list)

    def median(self, figure: str) -> float | None:
        values = [each[figure] for each in self.rounds if figure in each]
        return statistics.median(values) if values else None

    def medians(self) -> dict[str, float]:
        figures = dict.fromkeys(name for each in self.rounds for name in each)
        return {name: statistics.median(each[name] for each in self.rounds if name in each) for name in figures}


class Run:
    """All rows in the order of measuring, and what could not be measured."""

    def __init__(self) -> None:
        self.rows: dict[_Key, Row] = {}
        self.left_out: dict[str, str] = {}

    def add(self, part: str, case: str, target: str, result: Mapping[str, Any]) -> None:
        row = self.rows.setdefault((part, case, target), Row(part, case, target))
        row.rounds.append(_flat(result))

    def leave_out(self, what: str, reason: str) -> None:
        self.left_out[what] = reason

    def figure(self, part: str, case: str, target: str, name: str) -> float | None:
        row = self.rows.get((part, case, target))
        return None if row is None else row.median(name)

    def ratio(self, part: str, case: str, target: str, to: str, name: str) -> float | None:
        """A figure of one target, divided by that of another one."""
        return self._ratio((part, case, target), (part, case, to), name)

    def ratio_of_cases(self, part: str, case: str, to: str, target: str, name: str) -> float | None:
        """A figure of one case, divided by that of another one."""
        return self._ratio((part, case, target), (part, to, target), name)

    def _ratio(self, ours: _Key, theirs: _Key, name: str) -> float | None:
        """The median of the rounds' ratios. Both sides of a round were measured directly after each other."""
        if ours not in self.rows or theirs not in self.rows:
            return None
        rounds = zip(self.rows[ours].rounds, self.rows[theirs].rounds, strict=False)
        pairs = [(a[name], b[name]) for a, b in rounds if name in a and name in b]
        return statistics.median(a / b for a, b in pairs if b) if pairs else None


def _flat(result: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """{"a": {"p50": 1}} becomes {"a.p50": 1}."""
    flat: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = float(value)
    return flat
