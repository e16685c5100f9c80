"""Idempotent batches of one connection that were refused with a retriable error. Later batches must not overtake them.

A client takes the acknowledgement of one sequence as the acknowledgement of all earlier ones (KIP-98: the broker
would not have accepted it otherwise). The log ensures the order by its window of the producer. But a batch may be
refused before there is a window, because the log cannot be opened, or together with the window, when the log is
closed. The next batches of the connection then look like batches of an unknown producer, which may start at any
sequence.

A client may go to another leader with the refused batch, and come back with later batches over the same connection.
So a refusal counts only until the log has the batch, and only for batches that the client may have sent before it
got the refusal.
"""

from __future__ import annotations

from typing import Protocol

from gateway.errors import KafkaError
from gateway.topics import topic_names
from protocol.kafka.batch import BatchHeader
from protocol.kafka.errors import ErrorCode

MAX_REFUSED = 10_000
"""For one connection. The name of a topic and what belongs to it take at most 600 bytes."""
MAX_BEHIND = 4
"""An idempotent client has at most five batches of a partition in flight (KIP-98), including the refused one."""
_SEQUENCES = 2**31

_SENT_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class LogProducers(Protocol):
    """What a log knows of the producers of its batches."""

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        """Whether the producer of ``header`` has written ``sequence``, has it in flight, or has a later epoch."""


class _Refused:
    """The first refused sequence of a producer, and the number of later batches that were refused since."""

    __slots__ = ("behind", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.behind = 0


class RefusedBatches:
    """The first refused sequence of each producer and partition."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, int, int, int], _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, topic: str, partition: int, header: BatchHeader, code: ErrorCode) -> None:
        """The client gets ``code``. It will send the batch again if the error is retriable."""
        if header.producer_id < 0 or code not in _SENT_AGAIN or topic_names.invalid_reason(topic) is not None:
            return  # what cannot be a topic has no order, and may have a long name
        key = _key(topic, partition, header)
        first = self._refused.get(key)
        if first is not None and _is_behind(header.base_sequence, first.sequence):
            first.behind += 1
        else:
            self._refused[key] = _Refused(header.base_sequence)
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def check(self, topic: str, partition: int, header: BatchHeader, producers: LogProducers | None = None) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER for a later batch until the refused one comes again.

        ``producers`` are those of the partition, if this gateway leads it and knows its producers.
        """
        if not self._refused:
            return
        key = _key(topic, partition, header)
        refused = self._refused.get(key)
        if refused is None:
            return
        is_passed = producers is not None and producers.has_passed(header, refused.sequence)
        heard_of_it = refused.behind >= MAX_BEHIND or is_passed
        if _is_behind(header.base_sequence, refused.sequence) and not heard_of_it:
            text = f"sequence {refused.sequence} was refused and must be sent again first"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        del self._refused[key]


def _is_behind(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


def _key(topic: str, partition: int, header: BatchHeader) -> tuple[str, int, int, int]:
    return topic, partition, header.producer_id, header.producer_epoch
