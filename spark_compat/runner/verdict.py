"""The results of a trial on both sides, and their comparison."""

from dataclasses import dataclass, field
from typing import Any

from spark_compat.runner.compare import differences

SAME = "same"
DIFFERS = "differs"
FAILED = "failed"
NO_ROWS = "the trial has no rows on Kafka: it compares nothing"


@dataclass
class Outcome:
    """The result of one trial on one side."""

    duration_s: float
    rows: dict[str, list[str]] = field(default_factory=dict)
    """Name of an attempt → its rows, in the form of `compare.canonical`."""
    error: str | None = None
    timings: dict[str, float] = field(default_factory=dict)
    """Name of a measurement → seconds."""


@dataclass
class Verdict:
    job: str
    title: str
    kafka: Outcome
    gateway: Outcome

    @property
    def result(self) -> str:
        if self._errors():
            return FAILED
        return DIFFERS if self.details() else SAME

    def details(self) -> list[str]:
        """A line for each error; if there is none, for each row that only one side has. Empty if both are equal."""
        return self._errors() or differences(self.kafka.rows, self.gateway.rows)

    def to_json(self) -> dict[str, Any]:
        head = {"job": self.job, "title": self.title, "result": self.result, "details": self.details()}
        return {**head, "kafka": _to_json(self.kafka), "gateway": _to_json(self.gateway)}

    def _errors(self) -> list[str]:
        sides = {"Kafka": self.kafka, "gateway": self.gateway}
        errors = [f"{name}: {side.error}" for name, side in sides.items() if side.error]
        if not errors and not any(self.kafka.rows.values()):
            return [NO_ROWS]
        return errors


def _to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seconds": round(outcome.duration_s, 2),
        "rows": {name: len(rows) for name, rows in outcome.rows.items()},
        "error": outcome.error,
        "timings": {name: round(seconds, 2) for name, seconds in outcome.timings.items()},
    }
