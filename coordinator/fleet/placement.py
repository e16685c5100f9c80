"""Which gateway leads a partition: rendezvous hashing (Thaler and Ravishankar, 1998).

Each gateway has a weight for each partition, computed from both names; the highest weight leads. So all gateways with
the same members agree. When a member joins or leaves, only its own partitions move.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple

MAX_REMEMBERED = 100_000
"""Clients may ask for names of topics that do not exist, so the cache is bounded. A partition counts as one."""
NAME_BYTES = 300
"""A name counts as one more for each of these bytes."""
MAX_REMEMBERED_LENGTH = 1_024
"""Of a topic's name with its tenant and namespace. Longer names, which no topic has, are not remembered."""
_MASK = 2**64 - 1


class PartitionKey(NamedTuple):
    topic: str
    partition: int


class Placement:
    """Chooses leaders among `node_ids`. Recent results are cached."""

    def __init__(self, node_ids: Collection[int]) -> None:
        self._seeds = [(_hash(b"node %d" % node_id), node_id) for node_id in sorted(node_ids)]
        self._leaders: dict[str, dict[int, int | None]] = {}
        """By topic and partition."""
        self._count = 0

    def leader(self, key: tuple[str, int]) -> int | None:
        """`key` may be a plain tuple, which takes less time to create. None if there are no nodes."""
        try:
            return self._leaders[key[0]][key[1]]
        except KeyError:
            leader = self._highest(*key)
            self._remember(*key, leader)
            return leader

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        numbers = self._leaders.pop(topic, None)
        if numbers is not None:
            self._count -= len(numbers) + _size(topic)

    def _remember(self, topic: str, number: int, leader: int | None) -> None:
        if len(topic) > MAX_REMEMBERED_LENGTH:
            return
        added = 1 if topic in self._leaders else 1 + _size(topic)
        if self._count + added > MAX_REMEMBERED:
            self._leaders.clear()
            self._count, added = 0, 1 + _size(topic)
        self._leaders.setdefault(topic, {})[number] = leader
        self._count += added

    def _highest(self, topic: str, number: int) -> int | None:
        if len(self._seeds) <= 1:
            return self._seeds[0][1] if self._seeds else None
        partition = _hash(b"%d %s" % (number, topic.encode()))
        return max((_mix(seed ^ partition), node_id) for seed, node_id in self._seeds)[1]


def _size(topic: str) -> int:
    """What a name counts as: a character that is not ASCII may take four bytes."""
    return len(topic) * (1 if topic.isascii() else 4) // NAME_BYTES


def _hash(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


def _mix(value: int) -> int:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of the value."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
