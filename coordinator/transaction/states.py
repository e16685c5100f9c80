"""States of a transaction, and the effect of each event in each state.

A table's row gives the next state, or the error code of the answer (NONE: it is already done). Two transitions never
run at the same time: while a transition is in flight, or markers are being written, requests get
CONCURRENT_TRANSACTIONS before any table is read (`coordinator.py`).

Source: Kafka's TransactionState and TransactionCoordinator, 4.2.0; KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Mapping
from enum import Enum, auto

from protocol.kafka.errors import ErrorCode


class TransactionState(Enum):
    """Values are the names in DescribeTransactions and ListTransactions. `STATE_IDS` has the numbers in the log."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and has begun no transaction since."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """The transaction will be committed, whatever happens. Its markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """All markers are written."""
    COMPLETE_ABORT = "CompleteAbort"


STATE_IDS: Mapping[TransactionState, int] = {state: number for number, state in enumerate(TransactionState)}
"""In the order of Kafka's ids, which begin at 0. Kafka's ids 6 (Dead) and 7 (PrepareEpochFence) are never written."""
STATES_BY_ID: Mapping[int, TransactionState] = {number: state for state, number in STATE_IDS.items()}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
EXPIRABLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""In these states a transactional id is removed when it has not been used for `id_expiration_ms`."""


class Event(Enum):
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    """Also offsets of a group."""
    COMMIT = auto()
    ABORT = auto()
    COMMIT_AGAIN = auto()
    """A retry of COMMIT, recognised by its epoch (KIP-890: each end of a transaction raises the epoch)."""
    ABORT_AGAIN = auto()
    TIMEOUT = auto()
    """The transaction was open for longer than its producer's timeout."""
    MARKERS_WRITTEN = auto()


_INIT, _ADD, _COMMIT, _ABORT = Event.INIT_PRODUCER_ID, Event.ADD_PARTITIONS, Event.COMMIT, Event.ABORT
_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
_DONE, _WRONG, _WAIT = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS

Row = Mapping[Event, TransactionState | ErrorCode]

_BEGIN: Row = {_INIT: _EMPTY, _ADD: _ONGOING}
_FENCE: Row = {_INIT: _PREPARE_ABORT, Event.TIMEOUT: _PREPARE_ABORT}
"""The epoch is raised, too: the producer of the open transaction is fenced."""
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
"""For EndTxn from version 5 (KIP-890). For an event that is missing here the epoch is wrong: PRODUCER_FENCED.

A transaction to which nothing was added may be aborted: the client cannot know whether the partitions' leaders added
partitions.
"""
