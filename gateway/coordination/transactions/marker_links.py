"""The links over which other gateways may write markers: only the newest link of each gateway.

A coordinator that has stopped waiting for an answer retries over a new link. A marker that arrives over the old link
after that, because it was in a socket's buffer or waited for a log to be opened, must not be written: the next
transaction may have begun. Therefore the link is checked in the same turn of the event loop in which a marker is
appended. Clients that abort transactions have no such links.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count

MAX_GATEWAYS = 10_000
"""The limit of known gateways, more than a fleet ever has. Those that sent markers last are kept."""
_CLIENT_ID = re.compile(r"markers:(?P<process>[0-9a-f]{32}):(?P<number>[0-9]{1,18})")


def client_ids() -> Iterator[str]:
    """The client ids that this process sends in its requests: a new one for each link."""
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
