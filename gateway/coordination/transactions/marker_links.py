"""Over which links other gateways may still have markers written: the newest of each, and no older one.

A coordinator that has given up an answer asks again by a new link. What comes by the old one after that, because it lay
in a socket's buffer or waited for a log to be opened, must not be written: the next transaction may have begun. So it
is asked here in the same turn in which a marker is appended. Clients that abort transactions have no such links.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count

MAX_GATEWAYS = 10_000
"""More than a fleet ever has: those that were heard of last."""
_CLIENT_ID = re.compile(r"markers:(?P<process>[0-9a-f]{32}):(?P<number>[0-9]{1,18})")


def client_ids() -> Iterator[str]:
    """What the requests of this process carry by one link after the other."""
    process = uuid.uuid4().hex
    return (f"markers:{process}:{number}" for number in count(1))


class MarkerLinks:
    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def admits(self, client_id: str | None) -> bool:
        match = _CLIENT_ID.fullmatch(client_id or "")
        if match is None:
            return True
        process, number = match["process"], int(match["number"])
        newest = self._newest[process] = max(number, self._newest.get(process, 0))
        self._newest.move_to_end(process)
        if len(self._newest) > MAX_GATEWAYS:
            self._newest.popitem(last=False)
        return number == newest
