"""The names and prefixes of resources that ACLs of one kind are for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

from protocol.kafka.acl import WILDCARD, PatternType

_NO_LITERALS: set[str] = set()
_NO_PREFIXES: list[str] = []
"""Shared, and never changed: there may be very many patterns of each other kind."""


class ResourcePatterns:
    """Whether one of them matches a name takes a few comparisons, however many there are, and however long."""

    __slots__ = ("_literals", "_prefixes", "_shortest")

    def __init__(self) -> None:
        self._literals: set[str] = _NO_LITERALS
        self._prefixes: list[str] = _NO_PREFIXES
        """In order."""
        self._shortest: list[str] | None = None
        """Those that begin with no other one, in order; None if they have to be found again."""

    def __bool__(self) -> bool:
        return bool(self._literals or self._prefixes)

    def add(self, pattern: PatternType, name: str) -> None:
        """It is not there yet."""
        if pattern is PatternType.PREFIXED:
            self._prefixes = self._prefixes or []
            insort(self._prefixes, name)
            self._shortest = None
        else:
            self._literals = self._literals or set()
            self._literals.add(name)

    def remove(self, pattern: PatternType, name: str) -> None:
        """It is there."""
        if pattern is PatternType.PREFIXED:
            del self._prefixes[bisect_left(self._prefixes, name)]
            self._shortest = None
        else:
            self._literals.remove(name)

    @property
    def has_wildcard(self) -> bool:
        return WILDCARD in self._literals

    def matches(self, name: str) -> bool:
        return name in self._literals or WILDCARD in self._literals or self._has_prefix_of(name)

    def are_beyond(self, others: Sequence[ResourcePatterns]) -> bool:
        """Whether one of these is not contained in one of the others, as far as Kafka looks: names that a prefix or the
        wildcard has in common with narrower patterns do not matter."""
        if any(other.has_wildcard for other in others):
            return False
        if self.has_wildcard:
            return True
        if any(not any(other._has_prefix_of(prefix) for other in others) for prefix in self._shortest_prefixes()):
            return True
        return any(not any(other.matches(name) for other in others) for name in self._literals)

    def _has_prefix_of(self, name: str) -> bool:
        """Between a prefix of the name and the name itself, in order, is nothing that does not begin with the prefix:
        so among the shortest ones, it is the last one before the name."""
        if not self._prefixes:
            return False
        shortest = self._shortest_prefixes()
        behind = bisect_right(shortest, name)
        return behind > 0 and name.startswith(shortest[behind - 1])

    def _shortest_prefixes(self) -> Sequence[str]:
        if self._shortest is None:
            self._shortest = list(_shortest(self._prefixes))
        return self._shortest


def _shortest(prefixes: Sequence[str]) -> Iterator[str]:
    last: str | None = None
    for prefix in prefixes:
        if last is None or not prefix.startswith(last):
            last = prefix
            yield prefix
