"""The newest connection of each transactional producer: EndTxn from an older connection is refused (KAFKA-17754).

A client that got no answer retries over a new connection, and may then begin its next transaction. An EndTxn that it
sent over the old connection can still be in a gateway that was suspended for a moment, and would end that
transaction. Clients that use version 5 of EndTxn have a new epoch in each transaction, and do not need this.

A producer is known together with the transactional id of its requests. Requests are authorized by this id, so a client
that names the producer of another id must not make that producer's connections old ones.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from coordinator.transaction.messages import Producer

MAX_PRODUCERS = 100_000
"""The producers whose last request is newest are kept."""
MAX_NAME_LENGTH = 64
"""Longer transactional ids are kept as hashes of this length: any client may name ids of 32 KB."""


class NewestConnections:
    def __init__(self) -> None:
        self._numbers: OrderedDict[tuple[str, Producer], int] = OrderedDict()

    def record_use(self, transactional_id: str, producer: Producer, connection: int) -> bool:
        """`connection` is a number that increases with each connection. False if the producer has used a newer one."""
        key = _short(transactional_id), producer
        newest = self._numbers[key] = max(connection, self._numbers.get(key, -1))
        self._numbers.move_to_end(key)
        if len(self._numbers) > MAX_PRODUCERS:
            self._numbers.popitem(last=False)
        return connection == newest


def _short(name: str) -> str:
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return blake2b(name.encode(), digest_size=MAX_NAME_LENGTH // 2).hexdigest()
