"""Trials of two clusters that replicate to each other: one is lost under transactions, and comes back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice

from tests.integration.confluent import committed, watermarks
from tests.regions.geo import PARTITIONS, TAIL_S, Row, new_topic
from tests.regions.lab import Lab, Writer, until
from tests.regions.pipes import Pipes, leave_open
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.traffic.history import Read
from tests.support.traffic.history import Row as LogRow
from tests.support.traffic.transaction_history import SHOWN, Outcome, Transaction, TransactionHistory, violations
from tests.support.traffic.transactional_traffic import Reader, read_rows

COMMITS = 10
BEFORE_S = 5.0
WITHIN_S = 120.0
SETTLED_S = 240.0
"""Transactions that were open must time out, and replicators wait longer after each failed attempt."""
REGIONS = ("eu", "us")
COMMAND = "org.apache.kafka.tools.TransactionsCommand"


def lose_a_region_of_transactions(lab: Lab) -> Row:
    """eu is killed under transactions with offsets, some of them aborted or never ended, and comes back. The same
    transactional ids and the same group go on in us.

    No aborted record is read, and no transaction is torn, lost, doubled or out of order, in either cluster.
    """
    return _lose_eu(lab, "geo-txn", nullcontext(), 0)


def lose_a_tail_of_transactions(lab: Lab) -> Row:
    """The same, and the regions are cut from each other 3 s before eu is killed."""
    return _lose_eu(lab, "geo-txn-tail", lab.cut_between("eu", "us"), TAIL_S)


def give_up_a_region_of_transactions(lab: Lab) -> Row:
    """eu is killed under transactions, and us goes on without it. An operator aborts there what is undecided, with
    Kafka's own tool.

    Readers of committed records in us get all that is committed there, and nothing that was aborted.
    """
    source, target = new_topic(lab, "geo-given-up-in"), new_topic(lab, "geo-given-up-out")
    eu, us = lab.only("eu"), lab.only("us")
    writer = Writer(eu, source, PARTITIONS)
    with ExitStack() as stack:
        eu_pipes = stack.enter_context(Pipes(eu, source, target, f"{target}-group", PARTITIONS, "eu"))
        writer.write(BEFORE_S)
        hanging, _ = leave_open(eu, target, PARTITIONS, f"{target}-left-open")
        stack.callback(hanging.purge)
        until(lambda: all(undecided_offsets(us, target, number) for number in range(PARTITIONS)), "it is open in us")
        lab.cluster.kill("eu")
        stack.callback(lab.cluster.up)
        eu_pipes.abandon()
        writer.abandon()
        us_writer = Writer(us, source, PARTITIONS, "us", enable_idempotence=True)
        us_writer.write(1)
        us_pipes = stack.enter_context(Pipes(us, source, target, f"{target}-group", PARTITIONS, "us"))
        commit_on(us_pipes, us_writer)
        undecided = [undecided_offsets(us, target, number) for number in range(PARTITIONS)]
        aborted = _abort_hanging(us, target)
        decided_s = until(lambda: are_decided(lab, target, ("us",)), "it is aborted")
        us_pipes.abandon()
        us_writer.flush()
    ours = [each for each in us_pipes.transactions if each.outcome is Outcome.COMMITTED]
    aborted_ones = [
        each for each in (*eu_pipes.transactions, *us_pipes.transactions) if each.outcome is Outcome.ABORTED
    ]
    rows = [read_rows(us, target, number, "read_committed") for number in range(PARTITIONS)]
    shown = Counter(value for partition in rows for _, value in partition)
    assert max(shown.values()) == 1, "something is doubled"
    assert _values(ours) <= shown.keys(), "what was committed in us is not read"
    assert not _values(aborted_ones) & shown.keys(), "an aborted record is read"
    return {
        "undecided in us": f"{sum(undecided)} offsets",
        "aborted by the operator": f"{aborted} transactions in partitions",
        "all was decided": f"{decided_s:.1f} s later",
        "committed in us": str(len(ours)),
    }


def _values(transactions: Iterable[Transaction]) -> set[bytes]:
    return {value for each in transactions for _, value in each.values}


def _abort_hanging(bootstrap: str, topic: str) -> int:
    """What no coordinator of the cluster knows, and thus only came by replication. The number of transactions."""
    with KafkaTools(bootstrap) as tools:
        asked = ["--topic", topic, "--max-transaction-timeout", "0"]
        found = tools(COMMAND, "find-hanging", *asked)
        assert found.status == 0, found.text
        head, *lines = [line.split() for line in found.text.splitlines() if line.strip()]
        rows = [dict(zip(head, line, strict=True)) for line in lines]
        assert rows, "nothing hangs"
        for row in rows:
            place = ["--topic", row["Topic"], "--partition", row["Partition"], "--start-offset", row["StartOffset"]]
            done = tools(COMMAND, "abort", *place)
            assert done.status == 0, done.text
        return len(rows)


def _lose_eu(lab: Lab, name: str, cut: AbstractContextManager[None], tail_s: float) -> Row:
    """`cut` is closed from `tail_s` before eu is killed until eu is started again."""
    source, target = new_topic(lab, f"{name}-in"), new_topic(lab, f"{name}-out")
    group = f"{target}-group"
    eu, us = lab.only("eu"), lab.only("us")
    writer = Writer(eu, source, PARTITIONS)
    with ExitStack() as stack:
        reader = stack.enter_context(reading(us, target))
        eu_pipes = stack.enter_context(Pipes(eu, source, target, group, PARTITIONS, "eu"))
        while min(committed(us, group, source, PARTITIONS)) < 0:
            writer.write(1)
            eu_pipes.check_alive()
        writer.write(BEFORE_S)
        hanging, left_open = leave_open(eu, target, PARTITIONS, f"{target}-left-open")
        until(lambda: all(undecided_offsets(us, target, number) for number in range(PARTITIONS)), "it is open in us")
        broken = stack.enter_context(ExitStack())
        broken.enter_context(cut)
        writer.write(tail_s)
        lab.cluster.kill("eu")
        eu_pipes.abandon()
        writer.abandon()
        check_position(lab, source, group, eu_pipes)
        undecided = [undecided_offsets(us, target, number) for number in range(PARTITIONS)]
        us_writer = Writer(us, source, PARTITIONS, "us", enable_idempotence=True)
        us_writer.write(1)
        us_pipes = stack.enter_context(Pipes(us, source, target, group, PARTITIONS, "us"))
        began_s = commit_on(us_pipes, us_writer)
        broken.close()
        lab.cluster.up()
        us_writer.write(1)
        us_writer.flush()
        decided_s = until(lambda: are_decided(lab, target), "every transaction is decided in both", SETTLED_S)
        us_pipes.abandon()
        stack.callback(hanging.purge)
    transactions = [*eu_pipes.transactions, left_open, *us_pipes.transactions]
    settled_s = until(lambda: are_equal(lab, target), "both have the same", SETTLED_S)
    for region in REGIONS:
        check_in(lab, region, target, transactions, reader.reads if region == "us" else [])
    counts = Counter(each.outcome for each in transactions)
    return {
        "transactions committed": str(counts[Outcome.COMMITTED]),
        "aborted": str(counts[Outcome.ABORTED]),
        "without an answer": str(counts[Outcome.UNKNOWN]),
        "lost": "0",
        "doubled": "0",
        "undecided in us without eu": f"{sum(undecided)} offsets",
        "us committed": f"{began_s:.1f} s after the kill",
        "all was decided": f"{decided_s:.1f} s after eu was up",
        "both had the same": f"{settled_s:.1f} s after that",
    }


def commit_on(pipes: Pipes, writer: Writer, count: int = COMMITS) -> float:
    """Seconds until each pipe has committed, of ``count`` more that it commits. They read what is written meanwhile."""
    start, began_s, since = time.monotonic(), None, pipes.commits
    while not pipes.have_committed(count, since):
        writer.write(0.5)
        pipes.check_alive()
        took_s = time.monotonic() - start
        assert took_s < WITHIN_S, "the same transactional ids do not go on"
        if began_s is None and pipes.have_committed(1, since):
            began_s = took_s
    return began_s or took_s


@contextmanager
def reading(bootstrap: str, topic: str, name: str = "a reader in us") -> Iterator[Reader]:
    reader = Reader(bootstrap, topic, PARTITIONS, name)
    reader.start()
    try:
        yield reader
    finally:
        reader.stopping.set()
        reader.join(WITHIN_S)
    assert reader.failure is None, reader.failure


def check_position(lab: Lab, source: str, group: str, pipes: Pipes) -> None:
    """In us the group is behind no record that only aborted transactions have read."""
    us = lab.only("us")
    for number, offset in enumerate(committed(us, group, source, PARTITIONS)):
        passed = {value for at, value in read_rows(us, source, number, "read_uncommitted") if at < offset}
        skipped = passed - pipes.consumed
        assert not skipped, f"the group has passed {sorted(skipped)[:5]} in us, which no committed transaction has read"


def undecided_offsets(bootstrap: str, topic: str, partition: int) -> int:
    """The number of offsets behind the last stable one."""
    stable = watermarks(bootstrap, topic, partition)[1]
    return watermarks(bootstrap, topic, partition, isolation_level="read_uncommitted")[1] - stable


def are_decided(lab: Lab, topic: str, regions: Sequence[str] = REGIONS, partitions: int = PARTITIONS) -> bool:
    return not any(
        undecided_offsets(lab.only(region), topic, number) for region in regions for number in range(partitions)
    )


def are_equal(lab: Lab, topic: str, regions: Sequence[str] = REGIONS, *, doubled: bool = False) -> bool:
    """With ``doubled``, something may be there twice."""
    count = set if doubled else Counter
    first, *others = (
        [
            count(value for _, value in read_rows(lab.only(region), topic, number, isolation))
            for number in range(PARTITIONS)
            for isolation in ("read_uncommitted", "read_committed")
        ]
        for region in regions
    )
    return all(each == first for each in others)


def check_in(
    lab: Lab, region: str, topic: str, transactions: list[Transaction], reads: list[Read], *, doubled: bool = False
) -> int:
    """The number of copies that are there twice, if they may."""
    twice = 0
    found = TransactionHistory(transactions, reads=reads)
    for number in range(PARTITIONS):
        found.everything[number] = read_rows(lab.only(region), topic, number, "read_uncommitted")
        found.committed[number] = read_rows(lab.only(region), topic, number, "read_committed")
        if doubled:
            once = _copies_once(region, found.committed[number])
            twice += len(found.committed[number]) - len(once)
            found.committed[number] = once
    told = [f"in {region}: {text}" for rule in violations(found).values() for text in islice(rule, SHOWN)]
    assert not told, "\n".join(told)
    return twice


def _copies_once(region: str, rows: list[LogRow]) -> list[LogRow]:
    """Without what came again from another region."""
    first = {value: offset for offset, value in reversed(rows)}
    own = (f"{region}-".encode(), f"-{region}-".encode())
    return [
        (offset, value) for offset, value in rows
        if first[value] == offset or value.startswith(own[0]) or own[1] in value
    ]  # fmt: skip
