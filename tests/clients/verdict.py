"""The results of a case on both sides, and their comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

PASS = "pass"
FAIL = "fail"
NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Outcome:
    """The result of one case with one client on one side."""

    result: Any = None
    error: str | None = None
    unsupported: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Verdict:
    case: str
    feature: str
    title: str
    kafka: Outcome
    gateway: Outcome

    @property
    def result(self) -> str:
        """Kafka shows what a client can do: a case that fails there is not required of the gateway."""
        if self.kafka.unsupported or self.kafka.error:
            return NOT_APPLICABLE
        if self.gateway.error or self.gateway.unsupported or self.gateway.result != self.kafka.result:
            return FAIL
        return PASS

    @property
    def cause(self) -> str:
        """The cause of a result that is not a pass."""
        if self.kafka.unsupported:
            return self.kafka.unsupported
        if self.kafka.error:
            return f"fails on Apache Kafka{self._of_the_gateway()}: {self.kafka.error}"
        if self.gateway.error or self.gateway.unsupported:
            return str(self.gateway.error or self.gateway.unsupported)
        return f"{self.gateway.result} instead of {self.kafka.result}" if self.result == FAIL else ""

    def _of_the_gateway(self) -> str:
        if self.gateway.error is None:
            return ", not on the gateway"
        return ", on the gateway alike" if self.gateway.error == self.kafka.error else ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "result": self.result, "cause": self.cause}
