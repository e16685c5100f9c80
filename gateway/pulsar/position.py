"""Where an entry lies in a topic."""

from typing import NamedTuple


class Position(NamedTuple):
    """A BookKeeper ledger and an entry in it. Positions of one topic order as tuples do.

    An entry id of -1 stands before a ledger's first entry; ledger -1 means that there is no position at all.
    """

    ledger_id: int
    entry_id: int


def first_index(index: int, num_messages: int) -> int:
    """The broker entry index of the first message of an entry whose last one has ``index``.

    How many there are, the entry's producer says: where that cannot be, the entry counts as one message.
    """
    return index - num_messages + 1 if 0 < num_messages <= index + 1 else index
