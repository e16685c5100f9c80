"""Where the gateway answers otherwise than Apache Kafka 3.9.2, and why. Nothing else may differ.

Each entry names cases by pattern and the paths in the answers that may differ there. A case that a pattern covers
fails when a path outside the entry differs, and also when nothing differs any more: then the entry has to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True)
class Difference:
    """`case` and `paths` are patterns (`*` and `?`); brackets are plain characters."""

    case: str
    paths: tuple[str, ...]
    reason: str

    def check(self, found: dict[str, tuple[Any, Any]]) -> None:
        """Raises AssertionError when `found` (path to both values) is not what this entry describes."""
        assert found, f"no longer differs from Kafka, remove the entry: {self.case} ({self.reason})"
        more = {path: values for path, values in found.items() if not self._covers(path)}
        assert not more, f"differs in more than is listed ({self.reason}): {more}"

    def _covers(self, path: str) -> bool:
        return any(_matches(path, pattern) for pattern in self.paths)


DIFFERENCES: tuple[Difference, ...] = ()


def find(case_name: str) -> Difference | None:
    """The entry for a case such as "test_fetch::test_end[v3]", if there is one."""
    return next((entry for entry in DIFFERENCES if _matches(case_name, entry.case)), None)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))
