"""Where an entry lies in a topic."""

from typing import NamedTuple


class Position(NamedTuple):
    """A BookKeeper ledger and an entry in it. Positions of one topic order as tuples do.

    An entry id of -1 stands before a ledger's first entry; ledger -1 means that there is no position at all.
    """

    ledger_id: int
    entry_id: int
