"""By which connection each transactional producer was heard of last: its EndTxn counts by no older one (KAFKA-17754).

A client that waited in vain asks again by a new connection, and may then begin its next transaction. What it sent by
the old one can still lie in a gateway that was stopped for a moment, and would end that transaction. Clients that use
version 5 of EndTxn have another epoch in each transaction, and need nothing of this.
"""

from __future__ import annotations

from collections import OrderedDict

from coordinator.transaction.messages import Producer

MAX_PRODUCERS = 100_000
"""Those that were heard of last."""


class NewestConnections:
    def __init__(self) -> None:
        self._numbers: OrderedDict[Producer, int] = OrderedDict()

    def hear(self, producer: Producer, connection: int) -> bool:
        """`connection` is a number that rises with each one. False if the producer has used a newer one."""
        newest = self._numbers[producer] = max(connection, self._numbers.get(producer, -1))
        self._numbers.move_to_end(producer)
        if len(self._numbers) > MAX_PRODUCERS:
            self._numbers.popitem(last=False)
        return connection == newest
