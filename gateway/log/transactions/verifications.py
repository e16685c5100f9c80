"""Which producers' transactions are known to have the partition: their coordinator was asked (KIP-890).

Only then will it end them here. A marker ends what is known of its producer, and answers that are under way come too
late: they may be of the transaction before.
"""

from __future__ import annotations

from gateway.errors import KafkaError
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode


class VerificationLostError(KafkaError):
    """A marker was written since, or may have been missed: the coordinator is to be asked again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS)


class Verification:
    """A question to the coordinator that is under way."""


class Verifications:
    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        """Of verified producers."""
        self._asked: dict[int, set[Verification]] = {}

    def epoch(self, producer_id: int) -> int:
        """That of the producer's verified transaction; -1 if there is none."""
        return self._epochs.get(producer_id, NO_PRODUCER_EPOCH)

    def begin(self, producer_id: int) -> Verification:
        verification = Verification()
        self._asked.setdefault(producer_id, set()).add(verification)
        return verification

    def verified(self, verification: Verification, producer_id: int, producer_epoch: int) -> bool:
        """The coordinator says that the partition belongs to the transaction. It counts unless a marker came since."""
        counts = verification in self._asked.get(producer_id, ())
        if counts:
            self._epochs[producer_id] = producer_epoch
        return counts

    def end(self, verification: Verification, producer_id: int) -> None:
        """Whatever came of it."""
        asked = self._asked.get(producer_id)
        if asked is not None:
            asked.discard(verification)
            if not asked:
                del self._asked[producer_id]

    def clear(self) -> None:
        """Markers may have been missed."""
        self._epochs.clear()
        self._asked.clear()

    def forget(self, producer_id: int) -> None:
        """A marker of the producer is about to be written, or was."""
        self._epochs.pop(producer_id, None)
        self._asked.pop(producer_id, None)
