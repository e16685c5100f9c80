"""The protocols that members of the classic protocol support, each with its metadata: assignors, by name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

Protocols = Sequence[tuple[str, bytes]]
"""(name, metadata), in the member's order of preference."""


@dataclass
class SupportedProtocols:
    """Of the members of a group. There may be thousands: they are counted, and not asked."""

    member_count: int = 0
    _supporters: Counter[str] = field(default_factory=Counter)

    def add(self, protocols: Protocols) -> None:
        self.member_count += 1
        self._supporters.update(names_of(protocols))

    def remove(self, protocols: Protocols) -> None:
        self.member_count -= 1
        for name in names_of(protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def by_all(self) -> set[str]:
        """What all members support."""
        return {name for name, count in self._supporters.items() if count == self.member_count}

    def have_common(self, protocols: Protocols) -> bool:
        """Whether all members support one of these."""
        return any(self._supporters[name] == self.member_count for name in names_of(protocols))


def names_of(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}
