"""The transactions that are not complete, with a notification when one is completed: for monitoring."""

from collections.abc import Callable

from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.transactional_id import TransactionalId

OnComplete = Callable[[TransactionState], None]
"""Called when all markers are written, with CompleteCommit or CompleteAbort."""
_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_OPEN = PREPARED | {TransactionState.ONGOING}


class OpenTransactions:
    def __init__(self, on_complete: OnComplete) -> None:
        self._on_complete = on_complete
        self._open: dict[str, TransactionalId] = {}

    def loaded(self, entry: TransactionalId) -> None:
        if entry.metadata.state in _OPEN:
            self._open[entry.name] = entry

    def changed(self, entry: TransactionalId) -> None:
        """The next state of the transactional id is in the log."""
        state = entry.metadata.state
        if state in _OPEN:
            self._open[entry.name] = entry
        elif self._open.pop(entry.name, None) is not None and state in _COMPLETE:
            self._on_complete(state)

    def clear(self) -> None:
        self._open = {}

    def prepared(self) -> list[TransactionalId]:
        """The transactions whose markers are being written."""
        return [entry for entry in self._open.values() if entry.metadata.state in PREPARED]

    def __len__(self) -> int:
        return len(self._open)

    @property
    def oldest_ms(self) -> int | None:
        """The start of the oldest open transaction, since the epoch; None if no transaction is open."""
        return min((entry.metadata.start_ms for entry in self._open.values()), default=None)
