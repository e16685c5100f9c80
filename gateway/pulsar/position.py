"""The position of an entry in a topic."""

from __future__ import annotations

from typing import NamedTuple

_TOO_LARGE = 2**63


class Position(NamedTuple):
    """A BookKeeper ledger and an entry in it. Positions of one topic are ordered like tuples.

    Entry id -1 is before a ledger's first entry; ledger id -1 means that there is no position.
    """

    ledger_id: int
    entry_id: int

    @property
    def is_possible(self) -> bool:
        """Whether it may be in a topic. Pulsar's protocol has no larger numbers."""
        return all(-1 <= number < _TOO_LARGE for number in self)


def parse_position(text: str) -> Position | None:
    """The position that a property names, as `ledger:entry`. None if it is no position: anybody may write properties.
    """
    ledger_id, _, entry_id = text.partition(":")
    try:
        found = Position(int(ledger_id), int(entry_id))
    except ValueError:
        return None
    return found if found.is_possible else None


def first_index(index: int, num_messages: int) -> int:
    """The broker entry index of an entry's first message; ``index`` is the index of its last message.

    The number of messages is set by the entry's producer. If it is impossible, the entry counts as one message.
    """
    return index - num_messages + 1 if 0 < num_messages <= index + 1 else index
