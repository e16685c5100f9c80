"""What clients of a fleet saw, checked for contradictions to Kafka's guarantees. Pure: facts in, texts out.

Times are in seconds of one monotonic clock (`time.monotonic`, which all processes of a machine share). A call happened
between `asked` and `answered`: of two calls, one was certainly first only if it was answered before the other was sent.
Only certain contradictions are called violations.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SHOWN = 5
"""The number of examples for each kind of violation."""

Row = tuple[int, bytes]
"""Offset and value."""


class Write(NamedTuple):
    """An acknowledged record."""

    partition: int
    offset: int
    value: bytes
    producer: str = ""
    number: int = 0
    """The number of the record among those that the producer sent to the partition."""


class Read(NamedTuple):
    """A record that a member of a group read. The reads of a member are in the order of reading."""

    member: str
    stint: int
    """Counts the member's assignments: after each it starts at the committed offsets."""
    partition: int
    offset: int
    value: bytes
    since: float = 0.0
    """When the assignment began."""
    group: str = ""


class Commit(NamedTuple):
    """A committed offset: the one after the last record that was read."""

    partition: int
    offset: int
    asked: float
    answered: float
    group: str = ""


class Lookup(NamedTuple):
    """A committed offset, as a client fetched it."""

    partition: int
    offset: int
    asked: float
    answered: float
    group: str = ""


class Share(NamedTuple):
    """The assignment of a member in a generation of its group."""

    member: str
    generation: int
    partitions: tuple[int, ...]


class Turn(NamedTuple):
    """A call that a gateway answered as the group's coordinator.

    The gateway's leader epoch of the group's partition was the same before and after the call.
    """

    gateway: str
    group: str
    epoch: int
    asked: float
    answered: float
    call: str = ""

    @property
    def text(self) -> str:
        return f"{self.gateway} ({self.call}, {self.asked:.3f} to {self.answered:.3f})"


class Append(NamedTuple):
    """An entry of an internal topic. Entries are in the log's order."""

    partition: int
    producer: str


@dataclass
class History:
    """Everything that clients saw. Parts that are empty are not checked."""

    writes: list[Write] = field(default_factory=list)
    logs: dict[int, list[Row]] = field(default_factory=dict)
    """By partition, all records, read from the beginning at the end of a trial."""
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)


class Allowed(NamedTuple):
    """What a deployment or a client may do beyond the strictest guarantees."""

    copies: bool = False
    """Records may be in the log twice, because the producers are not idempotent."""
    other_offsets: bool = False
    """The logs are those of another cluster, with offsets of its own."""
    late_writes: bool = False
    """Records may not have arrived yet."""
    unread: bool = False
    """The group has not read everything yet."""
    read_again: bool = False
    """A group that moved to another cluster may read records again after it committed their offsets."""


STRICT = Allowed()


def check(history: History, allowed: Allowed = STRICT, *, where: str = "") -> None:
    """Raises AssertionError with the first violations of each kind."""
    found = [text for rule in violations(history, allowed).values() for text in itertools.islice(rule, SHOWN)]
    assert not found, "\n".join([where, *found])


def violations(history: History, allowed: Allowed = STRICT) -> Mapping[str, Iterator[str]]:
    """All violations, by rule."""
    rules: dict[str, Iterator[str]] = {
        "two values": two_values(history, allowed),
        "order": out_of_order(history, allowed),
        "polls": polls_back(history.reads),
        "commits": commits_back(history.commits, history.lookups),
        "owners": two_owners(history.shares),
        "coordinators": two_coordinators(history.turns),
        "writers": two_writers(history.appends),
    }
    if not allowed.late_writes:
        rules["lost"] = lost(history, allowed)
    if not allowed.copies:
        rules["doubled"] = doubled(history)
    if not allowed.unread:
        rules["unread"] = unread(history)
    if not allowed.read_again:
        rules["read again"] = read_again(history.reads, history.commits)
    return rules


# Records


def lost(history: History, allowed: Allowed) -> Iterator[str]:
    """Each acknowledged record is in its log, at the offset of its acknowledgement."""
    rows = {partition: set(log) for partition, log in history.logs.items()}
    values = {partition: {value for _, value in log} for partition, log in history.logs.items()}
    for write in history.writes:
        if write.partition not in rows:
            continue
        if write.value not in values[write.partition]:
            yield f"{_of(write)} was acknowledged and is not in the log"
        elif not allowed.other_offsets and (write.offset, write.value) not in rows[write.partition]:
            yield f"{_of(write)} is in the log, at another offset"


def doubled(history: History) -> Iterator[str]:
    for partition, log in history.logs.items():
        for value, times in Counter(value for _, value in log).items():
            if times > 1:
                offsets = ", ".join(str(offset) for offset, each in log if each == value)
                yield f"{value!r} is {times} times in partition {partition}, at {offsets}"


def two_values(history: History, allowed: Allowed) -> Iterator[str]:
    """At an offset, every read returns the same value, at any time."""
    rows = ((partition, offset, value) for partition, log in history.logs.items() for offset, value in log)
    reads = ((read.partition, read.offset, read.value) for read in history.reads)
    writes = ((write.partition, write.offset, write.value) for write in history.writes)
    seen: dict[tuple[int, int], bytes] = {}
    told = itertools.chain(rows, reads, () if allowed.other_offsets else writes)
    for partition, offset, value in told:
        before = seen.setdefault((partition, offset), value)
        if before != value:
            yield f"partition {partition} has {before!r} and {value!r} at offset {offset}"


def out_of_order(history: History, allowed: Allowed) -> Iterator[str]:
    """A producer's records are in a log in the order of sending; of duplicates, only the first ones are checked."""
    numbers = {(write.partition, write.value): (write.producer, write.number) for write in history.writes}
    for partition, log in history.logs.items():
        if [offset for offset, _ in log] != sorted({offset for offset, _ in log}):
            yield f"the offsets of partition {partition} do not rise"
        last: dict[str, tuple[int, bytes]] = {}
        first_copies = dict.fromkeys(value for _, value in log)
        for value in first_copies:
            if (partition, value) not in numbers:
                continue
            producer, number = numbers[partition, value]
            before, earlier = last.get(producer, (-1, b""))
            if number < before:
                yield f"partition {partition} has {value!r} behind {earlier!r}"
            last[producer] = (number, value)


# Groups


def unread(history: History) -> Iterator[str]:
    """The members together read each acknowledged record."""
    if not history.reads:
        return
    read = {(each.partition, each.value) for each in history.reads}
    for write in history.writes:
        if (write.partition, write.value) not in read:
            yield f"{_of(write)} was acknowledged and never read"


def read_again(reads: Iterable[Read], commits: Iterable[Commit]) -> Iterator[str]:
    """A member that begins to read after a commit was answered begins at or after the committed offset."""
    by_key = _by_key(commits)
    floors: dict[tuple[str, int, float], int] = {}
    for read in reads:
        key = (read.group, read.partition, read.since)
        if key not in floors:
            before = (each.offset for each in by_key[read.group, read.partition] if each.answered < read.since)
            floors[key] = max(before, default=0)
        if read.offset < floors[key]:
            yield (
                f"{read.member} read offset {read.offset} of partition {read.partition}"
                f" after {floors[key]} was committed"
            )


def polls_back(reads: Iterable[Read]) -> Iterator[str]:
    """While a member owns a partition, the offsets that it reads rise, and it reads none twice."""
    last: dict[tuple[str, str, int, int], int] = {}
    for read in reads:
        key = (read.group, read.member, read.stint, read.partition)
        if read.offset <= last.get(key, -1):
            yield f"{read.member} was given offset {read.offset} of partition {read.partition} after {last[key]}"
        last[key] = read.offset


def commits_back(commits: Iterable[Commit], lookups: Iterable[Lookup]) -> Iterator[str]:
    """No answered commit is lost, or replaced by a lower one, at whatever gateway it is read.

    Members commit what they have read. So a lower commit that was sent later should have been refused.
    """
    by_key = _by_key(commits)
    for kind, calls in (("committed", commits), ("answered", lookups)):
        for call in calls:
            before = (each.offset for each in by_key[call.group, call.partition] if each.answered < call.asked)
            floor = max(before, default=-1)
            if call.offset < floor:
                yield f"partition {call.partition}: {call.offset} was {kind} after {floor} had been committed"


def _by_key(commits: Iterable[Commit]) -> Mapping[tuple[str, int], list[Commit]]:
    """Commits by group and partition."""
    found: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    for commit in commits:
        found[commit.group, commit.partition].append(commit)
    return found


def two_owners(shares: Iterable[Share]) -> Iterator[str]:
    """In no generation is a partition assigned to two members."""
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for share in shares:
        for partition in share.partitions:
            owners[share.generation, partition].add(share.member)
    for (generation, partition), members in owners.items():
        if len(members) > 1:
            yield f"partition {partition} belongs to {', '.join(sorted(members))} in generation {generation}"


# Coordinators


def two_coordinators(turns: Sequence[Turn]) -> Iterator[str]:
    """In an epoch one gateway coordinates a group; none coordinates it in an older epoch after another did in a newer
    one."""
    by_group: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_group[turn.group].append(turn)
    for group, own in by_group.items():
        holders: dict[int, dict[str, Turn]] = defaultdict(dict)
        for turn in own:
            holders[turn.epoch].setdefault(turn.gateway, turn)
        for epoch, first in holders.items():
            if len(first) > 1:
                who = " and ".join(turn.text for turn in first.values())
                yield f"two gateways coordinated {group} in epoch {epoch}: {who}"
        yield from _outlived(group, own)


def _outlived(group: str, turns: Sequence[Turn]) -> Iterator[str]:
    """Calls that began after another gateway had certainly answered in a newer epoch."""
    finished = sorted(turns, key=lambda turn: turn.answered)
    newest: Turn | None = None
    done = 0
    for turn in sorted(turns, key=lambda turn: turn.asked):
        while finished[done].answered < turn.asked:
            newest = max(newest or finished[done], finished[done], key=lambda each: each.epoch)
            done += 1
        if newest is not None and newest.epoch > turn.epoch and newest.gateway != turn.gateway:
            yield (
                f"{turn.text} coordinated {group} in epoch {turn.epoch} after {newest.text} in epoch {newest.epoch}"
            )


def two_writers(appends: Iterable[Append]) -> Iterator[str]:
    """Each new leader of an internal topic's partition writes with a new producer name, and no earlier name writes
    again."""
    names: dict[int, list[str]] = defaultdict(list)
    for append in appends:
        if names[append.partition][-1:] == [append.producer]:
            continue
        if append.producer in names[append.partition]:
            later = names[append.partition][-1]
            yield f"internal partition {append.partition}: {append.producer} wrote again after {later}"
        names[append.partition].append(append.producer)


def _of(write: Write) -> str:
    return f"{write.value!r} (partition {write.partition}, offset {write.offset})"
