"""The position of an entry in a topic."""

from typing import NamedTuple


class Position(NamedTuple):
    """A BookKeeper ledger and an entry in it. Positions of one topic are ordered like tuples.

    Entry id -1 is before a ledger's first entry; ledger id -1 means that there is no position.
    """

    ledger_id: int
    entry_id: int


def first_index(index: int, num_messages: int) -> int:
    """The broker entry index of an entry's first message; ``index`` is the index of its last message.

    The number of messages is set by the entry's producer. If it is impossible, the entry counts as one message.
    """
    return index - num_messages + 1 if 0 < num_messages <= index + 1 else index
