"""Trials of three clusters, each of which replicates to both others: restarts in one, and the loss of one."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

from deploy.topology.description import Kind
from tests.integration.confluent import TIMEOUT_S, assigned, committed, watermarks
from tests.regions.changelog import Changelog, check_left, compacted_entries, make_compacted
from tests.regions.geo import PARTITIONS, Row, history_in, new_topic
from tests.regions.geo_transactional import (
    BEFORE_S,
    SETTLED_S,
    WITHIN_S,
    are_decided,
    are_equal,
    check_in,
    check_position,
    commit_on,
    reading,
    undecided_offsets,
)
from tests.regions.lab import Lab, Writer, until
from tests.regions.member import Members
from tests.regions.pipes import Pipes, leave_open
from tests.support.traffic.history import Allowed, check
from tests.support.traffic.transaction_history import Outcome, Transaction
from tests.support.traffic.transactional_traffic import Writer as TransactionalWriter
from tests.support.traffic.transactional_traffic import stop_all

ROUNDS = 2
COMMITS_BETWEEN = 3
"""Commits of a client after each change. Restarts have transactions without offsets: librdkafka 2.16.0 hangs when the
group's coordinator is stopped before it gets the offsets (confluentinc/librdkafka#5511)."""
WRITERS_PAUSE_S = 0.2
"""Between two transactions of the other regions' writers."""
MOST_LEFT = 100
"""Entries with a thousand replaced values and more: what is less than half of the log, or too little, is left."""
CLEANED_S = 90.0
"""Cleaning looks every quarter of a minute at a log, and only at its size."""


def restart_gateways(lab: Lab) -> Row:
    """The two gateways of eu are restarted one after the other, twice, under transactions in all regions, an idempotent
    producer and a group.

    No aborted record is read, and no transaction is torn, lost, doubled or out of order, anywhere. The group skips
    nothing.
    """
    plain, target = new_topic(lab, "mesh-restart-plain"), new_topic(lab, "mesh-restart-out")
    eu = lab.only("eu")
    writers = {each: _transactional(lab, each, target) for each in lab.regions}
    writer = Writer(eu, plain, PARTITIONS, enable_idempotence=True)
    took: list[float] = []
    with ExitStack() as stack:
        readers = {each: stack.enter_context(reading(lab.only(each), target, each)) for each in lab.regions}
        members = stack.enter_context(Members(eu, f"{plain}-group", plain, count=2))
        stack.callback(stop_all, writers.values())
        stack.callback(lab.cluster.up)
        for each in writers.values():
            each.start()
        _go_on(writers["eu"], writer)
        for gateway in ROUNDS * lab.topology.of(Kind.GATEWAY, region="eu"):
            for change in (lab.cluster.stop, lab.cluster.start):
                change(gateway.name)
                took.append(_go_on(writers["eu"], writer))
        writer.flush()
        writer.check_no_errors()
        members.await_values({*writer.offsets} | writer.unplaced)
    check(history_in(lab, "eu", plain, writer, members), Allowed())
    transactions = [done for each in writers.values() for done in each.transactions]
    until(lambda: are_decided(lab, target, lab.regions), "every transaction is decided", SETTLED_S)
    settled_s = until(lambda: are_equal(lab, target, lab.regions), "all have the same", SETTLED_S)
    for region in lab.regions:
        check_in(lab, region, target, transactions, readers[region].reads)
    return {
        "acknowledged": str(len(writer.offsets) + len(writer.unplaced)),
        **_counted(transactions),
        "commits after each change": ", ".join(f"{each:.1f} s" for each in took),
        "all had the same": f"{settled_s:.1f} s",
    }


def _go_on(transactional: TransactionalWriter, writer: Writer) -> float:
    """Seconds until transactions were committed that began after the call. The other writer writes meanwhile."""
    start, since = time.monotonic(), transactional.committed
    while transactional.committed < since + 1 + COMMITS_BETWEEN:
        writer.write(0.2)
        assert transactional.failure is None, transactional.failure
        assert time.monotonic() - start < WITHIN_S, "transactions do not go on"
    return time.monotonic() - start


def lose_one_of_three(lab: Lab) -> Row:
    """eu and ap are cut from each other, and then eu is killed, under transactions in all of them. So us has what eu
    wrote last, and ap has not. The transactional ids and the group of eu go on in us, until eu is back.

    No aborted record is read, and no transaction is torn, lost or out of order, anywhere. None is doubled, but in eu by
    Pulsar. A compacted topic, to which ap only replicates, has the last committed value of each key everywhere, and is
    cleaned.
    """
    source, target, changelog = (new_topic(lab, f"mesh-{name}", count) for name, count in
                                 (("in", PARTITIONS), ("out", PARTITIONS), ("changelog", 1)))  # fmt: skip
    make_compacted(lab, changelog)
    group, eu, us = f"{target}-group", lab.only("eu"), lab.only("us")
    others = [_transactional(lab, each, target) for each in ("us", "ap")]
    logs = {each: Changelog(lab.only(each), changelog, each) for each in ("eu", "us")}
    writer = Writer(eu, source, PARTITIONS)
    with ExitStack() as stack:
        readers = {each: stack.enter_context(reading(lab.only(each), target, each)) for each in ("us", "ap")}
        eu_pipes = stack.enter_context(Pipes(eu, source, target, group, PARTITIONS, "eu"))
        stack.callback(stop_all, [*others, *logs.values()])
        for each in (*others, *logs.values()):
            each.start()
        while min(committed(us, group, source, PARTITIONS)) < 0 or min(each.commits for each in logs.values()) < 30:
            writer.write(1)
            eu_pipes.check_alive()
        writer.write(BEFORE_S)
        hanging, left_open = leave_open(eu, target, PARTITIONS, f"{target}-left-open")
        for region in ("us", "ap"):
            until(partial(_has_open, lab, region, target), f"it is open in {region}")
        broken = stack.enter_context(ExitStack())
        broken.enter_context(lab.cut_between("eu", "ap"))
        commit_on(eu_pipes, writer, COMMITS_BETWEEN)
        until(lambda: _apart(lab, target), "what eu has committed since is in us")
        logs["eu"].stopping.set()
        lab.cluster.kill("eu")
        eu_pipes.abandon()
        writer.abandon()
        check_position(lab, source, group, eu_pipes)
        behind = _apart(lab, target)
        assert behind, "nothing of eu is missing in ap"
        us_writer = Writer(us, source, PARTITIONS, "us", enable_idempotence=True)
        us_writer.write(1)
        us_pipes = stack.enter_context(Pipes(us, source, target, group, PARTITIONS, "us"))
        began_s = commit_on(us_pipes, us_writer)
        broken.close()
        lab.cluster.up()
        us_writer.write(1)
        us_writer.flush()
        stop_all([*others, logs["us"]])
        decided_s = until(lambda: are_decided(lab, target, lab.regions), "every transaction is decided", SETTLED_S)
        us_pipes.abandon()
        stack.callback(hanging.purge)
    transactions = [
        *eu_pipes.transactions, left_open, *us_pipes.transactions,
        *(done for each in others for done in each.transactions),
    ]  # fmt: skip
    settled_s = until(lambda: are_equal(lab, target, lab.regions, doubled=True), "all have the same", SETTLED_S)
    for region in ("us", "ap"):
        check_in(lab, region, target, transactions, readers[region].reads)
    twice = check_in(lab, "eu", target, transactions, [], doubled=True)
    until(lambda: are_decided(lab, changelog, lab.regions, 1), "the compacted topic is decided", SETTLED_S)
    superseded = [_superseded(lab, region, changelog, [*logs.values()]) for region in lab.regions]
    return {
        **_counted(transactions),
        "doubled": f"{twice} in eu, which it had from others before it was killed (apache/pulsar#25861)",
        "missing in ap, and not in us, until eu was back": str(behind),
        "us committed": f"{began_s:.1f} s after the kill",
        "all was decided": f"{decided_s:.1f} s after eu was up",
        "all had the same": f"{settled_s:.1f} s after that",
        "commits to the compacted topic": str(sum(each.commits for each in logs.values())),
        "replaced values that were left": ", ".join(map(str, superseded)),
    }


def _transactional(lab: Lab, region: str, topic: str) -> TransactionalWriter:
    return TransactionalWriter(lab.only(region), topic, PARTITIONS, f"{topic}-{region}", 1, WRITERS_PAUSE_S)


def _counted(transactions: list[Transaction]) -> Row:
    counts = Counter(each.outcome for each in transactions)
    return {
        "transactions committed": str(counts[Outcome.COMMITTED]),
        "aborted": str(counts[Outcome.ABORTED]),
        "without an answer": str(counts[Outcome.UNKNOWN]),
        "lost": "0",
        "doubled": "0",
    }


def _has_open(lab: Lab, region: str, topic: str) -> bool:
    return all(undecided_offsets(lab.only(region), topic, number) for number in range(PARTITIONS))


def _apart(lab: Lab, topic: str) -> int:
    """The records of eu that us has, and ap has not."""
    us, ap = (_of_eu(lab, region, topic) for region in ("us", "ap"))
    return len(us - ap)


def _of_eu(lab: Lab, region: str, topic: str) -> set[bytes]:
    found: set[bytes] = set()
    for number in range(PARTITIONS):
        end = watermarks(lab.only(region), topic, number, isolation_level="read_uncommitted")[1]
        with assigned(lab.only(region), topic, partition=number, enable_partition_eof=True) as consumer:
            for message in iter(partial(consumer.poll, TIMEOUT_S), None):
                if message.error() is not None or (message.offset() or 0) >= end:  # others write on: no end to wait for
                    break
                found.add(message.value() or b"")
    return {value for value in found if value.startswith(b"eu-")}


def _superseded(lab: Lab, region: str, topic: str, writers: list[Changelog]) -> int:
    """Wait until it is cleaned: reading it opens it, in a region where nobody has. A gateway may still have what it has
    written last in memory."""
    check_left(lab, region, topic, writers)
    until(lambda: 0 < compacted_entries(lab, region, topic) < MOST_LEFT, f"it is cleaned in {region}", CLEANED_S)
    return check_left(lab, region, topic, writers)
