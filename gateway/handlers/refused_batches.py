"""Idempotent batches of one connection that were refused for the moment, and that their successors must not overtake.

A client takes the acknowledgement of one sequence for that of all before it (KIP-98: the broker would not have accepted
it otherwise). The log judges that by its window of the producer; but a batch may be refused before there is a window,
because the log cannot be opened, or together with it, when the log is given up. The batches behind it on the connection
then look like those of a producer that nobody knows, which may start at any sequence.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.storage.errors import KafkaError
from protocol.kafka.batch import BatchHeader
from protocol.kafka.errors import ErrorCode

MAX_REFUSED = 10_000
_SEQUENCES = 2**31

_SENT_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class RefusedBatches:
    """The first refused sequence of each producer and partition."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[tuple[str, int, int, int], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sequences)

    def refuse(self, topic: str, partition: int, header: BatchHeader, code: ErrorCode) -> None:
        """The client is told ``code``, and will send the batch again if that is a passing one."""
        if header.producer_id < 0 or code not in _SENT_AGAIN:
            return
        key = _key(topic, partition, header)
        first = self._sequences.get(key)
        if first is None or _is_behind(first, header.base_sequence):
            self._sequences[key] = header.base_sequence
        if len(self._sequences) > MAX_REFUSED:
            self._sequences.popitem(last=False)

    def check(self, topic: str, partition: int, header: BatchHeader) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER for a later batch, until the refused one comes again."""
        if not self._sequences:
            return
        key = _key(topic, partition, header)
        refused = self._sequences.get(key)
        if refused is None:
            return
        if _is_behind(header.base_sequence, refused):
            text = f"sequence {refused} was refused and has to come first"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        del self._sequences[key]


def _is_behind(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


def _key(topic: str, partition: int, header: BatchHeader) -> tuple[str, int, int, int]:
    return topic, partition, header.producer_id, header.producer_epoch
