"""Writes transitions to the log: a transition is valid when the log has it.

If the log refuses a record for good, nothing has changed. If the log does not know whether it has a record, the
coordinator resigns: the next coordinator reads whether the record is there.
"""

from collections.abc import Callable, Sequence

from coordinator.log import Log
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.ports import APPEND_ERRORS, NOT_WRITTEN, TransactionVersion
from coordinator.transaction.records.transaction_log import FLEXIBLE_VERSION, encode_transaction
from coordinator.transaction.transactional_id import TransactionalId
from protocol.kafka.errors import ErrorCode

OnDone = Callable[[ErrorCode, int], None]
"""(error code of the response, now_ms)."""


class Transitions:
    def __init__(
        self,
        log: Log,
        version: TransactionVersion,
        serves: Callable[[], bool],
        on_ended: Callable[[TransactionalId, ErrorCode, int], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`on_ended` is called for each transition, before its own `on_done`."""
        self._log = log
        self._version = version
        self._serves = serves
        self._on_ended = on_ended
        self._on_lost = on_lost

    def append(self, entry: TransactionalId, metadata: TransactionMetadata, on_done: OnDone) -> None:
        entry.is_in_transition = True
        record = encode_transaction(entry.name, metadata, min(self._version(), FLEXIBLE_VERSION))

        def on_appended(error: ErrorCode, now_ms: int) -> None:
            outcome = self._outcome(error, now_ms)
            if self._serves():
                entry.is_in_transition = False
                if outcome is ErrorCode.NONE:
                    entry.metadata = metadata
                self._on_ended(entry, outcome, now_ms)
            on_done(outcome, now_ms)

        self._log.append([record], on_appended)

    def remove(self, entries: Sequence[TransactionalId], on_removed: Callable[[], None]) -> None:
        for entry in entries:
            entry.is_in_transition = True
        records = [encode_transaction(entry.name, None, 0) for entry in entries]

        def on_appended(error: ErrorCode, now_ms: int) -> None:
            outcome = self._outcome(error, now_ms)
            if self._serves():
                for entry in entries:
                    entry.is_in_transition = False
                if outcome is ErrorCode.NONE:
                    on_removed()
                for entry in entries:
                    entry.notify_if_free()

        self._log.append(records, on_appended)

    def _outcome(self, error: ErrorCode, now_ms: int) -> ErrorCode:
        if not self._serves():
            return ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE and error not in NOT_WRITTEN:
            self._on_lost(now_ms)
        return APPEND_ERRORS.get(error, error)
