"""The transactions that are not complete, and when one becomes it: for who watches the coordinator."""

from collections.abc import Callable

from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.transactional_id import TransactionalId

OnComplete = Callable[[TransactionState], None]
"""All markers are written: CompleteCommit or CompleteAbort."""
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
        """The log has its next state."""
        state = entry.metadata.state
        if state in _OPEN:
            self._open[entry.name] = entry
        elif self._open.pop(entry.name, None) is not None and state in _COMPLETE:
            self._on_complete(state)

    def clear(self) -> None:
        self._open = {}

    def prepared(self) -> list[TransactionalId]:
        """Those that lack markers."""
        return [entry for entry in self._open.values() if entry.metadata.state in PREPARED]

    def __len__(self) -> int:
        return len(self._open)

    @property
    def oldest_ms(self) -> int | None:
        """When it began, since the epoch; None if there is none."""
        return min((entry.metadata.start_ms for entry in self._open.values()), default=None)
