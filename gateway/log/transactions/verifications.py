"""Which producers' transactions are known to include the partition, because the coordinator has verified it (KIP-890).

Only then will the coordinator end the transaction here. A marker ends what is known of its producer. Answers to
verifications in progress are then too late: they may be about the previous transaction.
"""

from __future__ import annotations

from gateway.errors import KafkaError
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode


class VerificationLostError(KafkaError):
    """A marker was written since the verification, or may have been missed: the coordinator has to verify again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS)


class Verification:
    """A verification in progress: a request to the coordinator."""


class Verifications:
    __slots__ = ("_asked", "_epochs", "_suspected")

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        """The epochs of the verified producers."""
        self._asked: dict[int, set[Verification]] = {}
        self._suspected: dict[int, None] = {}
        """Producers whose open transactions may be unknown to their coordinators."""

    def epoch(self, producer_id: int) -> int:
        """The producer epoch of the verified transaction; -1 if there is none."""
        return self._epochs.get(producer_id, NO_PRODUCER_EPOCH)

    def include(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the transaction of this producer and epoch is verified. A batch may name any epoch, also -1."""
        return self._epochs.get(producer_id) == producer_epoch

    def begin(self, producer_id: int) -> Verification:
        verification = Verification()
        self._asked.setdefault(producer_id, set()).add(verification)
        return verification

    def verified(self, verification: Verification, producer_id: int, producer_epoch: int) -> bool:
        """The coordinator has confirmed the partition. False, without effect, if a marker came since ``begin``."""
        counts = verification in self._asked.get(producer_id, ())
        if counts:
            self._epochs[producer_id] = producer_epoch
        return counts

    def end(self, verification: Verification, producer_id: int) -> None:
        """The verification has ended, with any result."""
        asked = self._asked.get(producer_id)
        if asked is not None:
            asked.discard(verification)
            if not asked:
                del self._asked[producer_id]

    def clear(self) -> None:
        """Markers may have been missed: forget all verifications."""
        self._epochs.clear()
        self._asked.clear()

    def forget(self, producer_id: int) -> None:
        """A marker of the producer is about to be written, or was written."""
        self._epochs.pop(producer_id, None)
        self._asked.pop(producer_id, None)

    def ended(self, producer_id: int) -> None:
        """A marker of the producer is in the log."""
        self.forget(producer_id)
        self._suspected.pop(producer_id, None)

    def suspect_hanging(self, producer_id: int) -> None:
        """Until a marker is in the log, the producer's open transaction is no proof: its batches are verified again."""
        self.forget(producer_id)
        self._suspected[producer_id] = None

    def is_suspected(self, producer_id: int) -> bool:
        """Whether the producer was suspected since its last marker, although it may have been verified after that."""
        return producer_id in self._suspected
