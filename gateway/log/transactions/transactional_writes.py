"""What may be appended to a log: batches of transactional producers, and markers of coordinators. For the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.errors import KafkaError
from gateway.log.transactions.log_transactions import LogTransactions
from gateway.log.transactions.marker_appends import AppendControl, MarkerAppends, MarkerForm
from gateway.log.transactions.verifications import VerificationLostError
from protocol.kafka.batch import BatchHeader
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import TransactionMarker


class TransactionalWrites:
    __slots__ = ("_fence", "_markers", "_transactions", "verifications")

    def __init__(
        self, transactions: LogTransactions, append: AppendControl, fence: Callable[[int, int], None]
    ) -> None:
        """``fence`` refuses batches of earlier epochs of a producer from now on."""
        self._transactions = transactions
        self._fence = fence
        self._markers = MarkerAppends(append)
        self.verifications = transactions.verifications

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether the coordinator has to verify this batch before it is appended. False if its epoch is fenced."""
        if not self._transactions.loaded:
            return True
        if self._is_fenced(header):
            return False
        if self.verifications.include(header.producer_id, header.producer_epoch):
            return False
        found = self._transactions.prefix.state.open.get(header.producer_id)
        is_open = found is not None and found.producer_epoch == header.producer_epoch
        return not is_open or header.producer_id in self._markers or self.verifications.is_suspected(header.producer_id)

    def _is_fenced(self, header: BatchHeader) -> bool:
        found = self._transactions.prefix.state.open.get(header.producer_id)
        return found is not None and header.producer_epoch < found.producer_epoch

    def check(self, header: BatchHeader) -> None:
        """Check that a producer's batch, verified if necessary, may be appended. Raises KafkaError."""
        if header.is_transactional:
            self._check_loaded()
            if self._is_fenced(header):
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
            if self.needs_verification(header):
                raise VerificationLostError
        elif header.producer_id in self._transactions.prefix.state.open:
            text = f"Expected transactional write from producer {header.producer_id}"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)

    def append_marker(
        self, marker: TransactionMarker, transaction_version: int, form: MarkerForm
    ) -> Awaitable[None]:
        """Completes when the marker is in the log. Fails when it is not, or perhaps is, but will not be later.

        Only after the log's ``prepare_marker``: all that others wrote before is known. Raises KafkaError.
        """
        under_way = self._markers.find(marker)
        if under_way is not None:
            return under_way
        self._check_marker(marker, transaction_version)
        self.verifications.forget(marker.producer_id)
        self._fence(marker.producer_id, marker.producer_epoch)
        return self._markers.append(marker, form)

    def _check_marker(self, marker: TransactionMarker, transaction_version: int) -> None:
        """Check that the marker may be appended. Batches in flight count, too. Raises KafkaError."""
        self._check_loaded()
        coming_epoch = self.verifications.epoch(marker.producer_id)
        error = self._transactions.prefix.state.marker_error(marker, transaction_version, coming_epoch)
        if error:
            raise KafkaError(error)

    def _check_loaded(self) -> None:
        if not self._transactions.loaded:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is being read")
