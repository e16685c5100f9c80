"""States of a transaction, and what each event does in each of them.

A table's row says what follows: the next state, or the error that the request is answered with (NONE: it is done
already). Two transitions never run at once: while one is on its way to the log, or markers are being written, requests
are answered CONCURRENT_TRANSACTIONS before any table is asked (`coordinator.py`).

Source: Kafka's TransactionState and TransactionCoordinator, 4.2.0; KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Mapping
from enum import Enum, auto

from protocol.kafka.errors import ErrorCode


class TransactionState(Enum):
    """Values are the names that DescribeTransactions and ListTransactions show. `ids` has those of the log."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and has begun nothing since."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """It will be committed, whatever happens: markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """All markers are written."""
    COMPLETE_ABORT = "CompleteAbort"


STATE_IDS: Mapping[TransactionState, int] = {state: number for number, state in enumerate(TransactionState)}
"""In the order of Kafka's ids, which begin at 0. Its 6 (Dead) and 7 (PrepareEpochFence) are never written."""
STATES_BY_ID: Mapping[int, TransactionState] = {number: state for state, number in STATE_IDS.items()}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
EXPIRABLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""A transactional id in one of these goes when it has not been used for long."""


class Event(Enum):
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    """Or offsets of a group."""
    COMMIT = auto()
    ABORT = auto()
    COMMIT_AGAIN = auto()
    """The epoch tells that the request is a retry (KIP-890: each end of a transaction raises the epoch)."""
    ABORT_AGAIN = auto()
    TIMEOUT = auto()
    """It has been open for longer than its producer allowed."""
    MARKERS_WRITTEN = auto()


_INIT, _ADD, _COMMIT, _ABORT = Event.INIT_PRODUCER_ID, Event.ADD_PARTITIONS, Event.COMMIT, Event.ABORT
_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
_DONE, _WRONG, _WAIT = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS

Row = Mapping[Event, TransactionState | ErrorCode]

_BEGIN: Row = {_INIT: _EMPTY, _ADD: _ONGOING}
_FENCE: Row = {_INIT: _PREPARE_ABORT, Event.TIMEOUT: _PREPARE_ABORT}
"""The epoch is raised, too: the producer that had the transaction open is out."""
_WRITING: Row = {_INIT: _WAIT, _ADD: _WAIT}

TABLE: Mapping[TransactionState, Row] = {
    _EMPTY: {**_BEGIN, _COMMIT: _WRONG, _ABORT: _WRONG},
    _ONGOING: {**_FENCE, _ADD: _ONGOING, _COMMIT: _PREPARE_COMMIT, _ABORT: _PREPARE_ABORT},
    _PREPARE_COMMIT: {**_WRITING, _COMMIT: _WAIT, _ABORT: _WRONG, Event.MARKERS_WRITTEN: _COMPLETE_COMMIT},
    _PREPARE_ABORT: {**_WRITING, _COMMIT: _WRONG, _ABORT: _WAIT, Event.MARKERS_WRITTEN: _COMPLETE_ABORT},
    _COMPLETE_COMMIT: {**_BEGIN, _COMMIT: _DONE, _ABORT: _WRONG},
    _COMPLETE_ABORT: {**_BEGIN, _COMMIT: _WRONG, _ABORT: _DONE},
}
"""For clients that keep their epoch from transaction to transaction: EndTxn up to version 4."""

END_TXN_V2: Mapping[TransactionState, Row] = {
    _EMPTY: {_COMMIT: _WRONG, _ABORT: _PREPARE_ABORT},
    _ONGOING: {_COMMIT: _PREPARE_COMMIT, _ABORT: _PREPARE_ABORT},
    _PREPARE_COMMIT: {Event.COMMIT_AGAIN: _WAIT, Event.ABORT_AGAIN: _WRONG},
    _PREPARE_ABORT: {Event.COMMIT_AGAIN: _WRONG, Event.ABORT_AGAIN: _WAIT},
    _COMPLETE_COMMIT: {
        _COMMIT: _WRONG, _ABORT: _PREPARE_ABORT, Event.COMMIT_AGAIN: _DONE, Event.ABORT_AGAIN: _WRONG,
    },
    _COMPLETE_ABORT: {
        _COMMIT: _WRONG, _ABORT: _PREPARE_ABORT, Event.COMMIT_AGAIN: _WRONG, Event.ABORT_AGAIN: _DONE,
    },
}  # fmt: skip
"""EndTxn from version 5 (KIP-890). What is not here has an epoch that does not fit the state: PRODUCER_FENCED.

A transaction to which nothing was added may be aborted: the client cannot know what the partitions' leaders did.
"""
