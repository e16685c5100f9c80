"""What clients saw of transactions, checked for contradictions to Kafka's guarantees. Like history.py, it is pure, and
only certain contradictions are called violations."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.support.traffic import history
from tests.support.traffic.history import History, Read, Row

SHOWN = 5


class Outcome(Enum):
    COMMITTED = "committed"
    """The commit was answered."""
    ABORTED = "aborted"
    """The abort was answered; or the producer was killed before it sent an end, and was fenced."""
    UNKNOWN = "unknown"
    """The producer sent an end, and got no answer."""


class Transaction(NamedTuple):
    producer: str
    number: int
    """The number of the transaction among those of its transactional id, in any process."""
    outcome: Outcome
    values: tuple[tuple[int, bytes], ...]
    """Partition and value of each record, in the order of sending. No two transactions send the same value."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Committed offsets of source partitions: the next offset to read."""


@dataclass
class TransactionHistory:
    """Everything that clients saw. Parts that are empty are not checked."""

    transactions: list[Transaction] = field(default_factory=list)
    committed: dict[int, list[Row]] = field(default_factory=dict)
    """By partition, all records that a read_committed consumer reads at the end of a trial."""
    everything: dict[int, list[Row]] = field(default_factory=dict)
    """The same with read_uncommitted."""
    reads: list[Read] = field(default_factory=list)
    """Records that read_committed consumers read during the trial."""
    source_offsets: dict[int, int] = field(default_factory=dict)
    """The group's committed offsets at the end."""


def check(found: TransactionHistory) -> None:
    """Raises AssertionError with the first violations of each kind."""
    told = [text for rule in violations(found).values() for text in itertools.islice(rule, SHOWN)]
    assert not told, "\n".join(told)


def violations(found: TransactionHistory) -> Mapping[str, Iterator[str]]:
    """All violations, by rule."""
    plain = History(logs=found.committed, reads=found.reads)
    return {
        "aborted read": aborted_read(found),
        "torn": torn(found),
        "lost": lost(found),
        "doubled": history.doubled(plain),
        "order": out_of_order(found),
        "two values": history.two_values(plain, history.STRICT),
        "not in the log": not_in_the_log(found),
        "polls": history.polls_back(found.reads),
        "poll skip": poll_skips(found.reads, found.committed),
        "offsets": offsets_apart(found),
    }


def aborted_read(found: TransactionHistory) -> Iterator[str]:
    """No read_committed consumer ever reads a record of an aborted transaction."""
    aborted = {
        (partition, value): each
        for each in found.transactions
        if each.outcome is Outcome.ABORTED
        for partition, value in each.values
    }
    for who, partition, offset, value in _given(found):
        if (transaction := aborted.get((partition, value))) is not None:
            yield f"{who} was given {value!r} of {_of(transaction)}, which was aborted (offset {offset})"


def torn(found: TransactionHistory) -> Iterator[str]:
    """A transaction is read completely or not at all."""
    rows = _values(found.committed)
    for each in found.transactions:
        known = [(partition, value) for partition, value in each.values if partition in found.committed]
        there = [row for row in known if row in rows]
        if there and len(there) < len(known):
            missing = next(row for row in known if row not in rows)
            yield f"of {_of(each)} {there[0][1]!r} is read, and {missing[1]!r} is not"


def lost(found: TransactionHistory) -> Iterator[str]:
    """Every record of a transaction whose commit was answered is read."""
    rows = _values(found.committed)
    for each in found.transactions:
        for partition, value in each.values if each.outcome is Outcome.COMMITTED else ():
            if partition in found.committed and (partition, value) not in rows:
                yield f"{value!r} of {_of(each)} was committed and is not read from partition {partition}"


def out_of_order(found: TransactionHistory) -> Iterator[str]:
    """A producer's records are read in the order of its transactions, and within each in the order of sending."""
    places = {
        (partition, value): (each.producer, (each.number, place))
        for each in found.transactions
        for place, (partition, value) in enumerate(each.values)
    }
    for partition, log in found.committed.items():
        last: dict[str, tuple[tuple[int, int], bytes]] = {}
        for _, value in log:
            if (partition, value) not in places:
                continue
            producer, place = places[partition, value]
            before, earlier = last.get(producer, ((-1, -1), b""))
            if place < before:
                yield f"partition {partition} has {value!r} behind {earlier!r}"
            last[producer] = (place, value)


def not_in_the_log(found: TransactionHistory) -> Iterator[str]:
    """read_committed reads a part of the records of read_uncommitted, at the same offsets."""
    for partition, log in found.committed.items():
        if partition in found.everything:
            rows = set(found.everything[partition])
            for offset, value in log:
                if (offset, value) not in rows:
                    yield f"{value!r} is read_committed at offset {offset} of partition {partition}, and not otherwise"


def poll_skips(reads: Iterable[Read], committed: Mapping[int, Sequence[Row]]) -> Iterator[str]:
    """Between two successive records of a consumer there is no committed record that it skipped."""
    ranks = {partition: {offset: rank for rank, (offset, _) in enumerate(log)} for partition, log in committed.items()}
    last: dict[tuple[str, str, int, int], int] = {}
    for read in reads:
        key = (read.group, read.member, read.stint, read.partition)
        before, last[key] = last.get(key), read.offset
        rank = ranks.get(read.partition, {}).get(read.offset)
        if before is None or rank is None or rank == 0:
            continue
        offset, value = committed[read.partition][rank - 1]
        if offset > before:
            place = f"offset {read.offset} of partition {read.partition}"
            yield f"{read.member} was given {place} after {before}, without {value!r}"


def offsets_apart(found: TransactionHistory) -> Iterator[str]:
    """The group's offsets are those of the last transaction whose records are read.

    One producer at a time reads a source partition, so its offsets rise.
    """
    rows = _values(found.committed)
    expected: dict[int, int] = defaultdict(int)
    for each in found.transactions:
        is_read = any(row in rows for row in each.values)
        for partition, offset in each.offsets if is_read else ():
            expected[partition] = max(expected[partition], offset)
    for partition, offset in found.source_offsets.items():
        if offset != expected[partition]:
            yield f"{offset} is committed of source partition {partition}, and all before {expected[partition]} is read"


def _given(found: TransactionHistory) -> Iterator[tuple[str, int, int, bytes]]:
    for partition, log in found.committed.items():
        for offset, value in log:
            yield "a consumer in the end", partition, offset, value
    for read in found.reads:
        yield read.member, read.partition, read.offset, read.value


def _values(logs: Mapping[int, Iterable[Row]]) -> set[tuple[int, bytes]]:
    return {(partition, value) for partition, log in logs.items() for _, value in log}


def _of(transaction: Transaction) -> str:
    return f"transaction {transaction.number} of {transaction.producer}"
