"""Trials of two clusters that replicate to each other: losing one under load, its return, and writing in both."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial

from tests.integration.confluent import Sender, committed, create_topic, read_all_values
from tests.regions.lab import Lab, Writer, until
from tests.regions.member import Members
from tests.support.names import unique_topic
from tests.support.traffic.history import Allowed, History, check

Row = dict[str, str]
PARTITIONS = 2
BEFORE_S = 8.0
TAIL_S = 3.0


def lose_a_region(lab: Lab) -> Row:
    """eu is killed under load and comes back. A group goes on in us, then in eu again."""
    return _lose_eu(lab, "geo-loss", nullcontext(), 0)


def lose_a_region_with_a_tail(lab: Lab) -> Row:
    """The regions are cut from each other 3 s before eu is killed. eu's last records reach us when eu is back."""
    return _lose_eu(lab, "geo-tail", lab.cut_between("eu", "us"), TAIL_S)


def _lose_eu(lab: Lab, name: str, cut: AbstractContextManager[None], tail_s: float) -> Row:
    """`cut` is closed from `tail_s` before eu is killed until eu is started again."""
    topic = new_topic(lab, name)
    group = f"{topic}-group"
    writer = Writer(lab.only("eu"), topic, PARTITIONS)
    with ExitStack() as stack:
        with Members(lab.only("eu"), group, topic) as eu_members:
            while min(committed(lab.only("us"), group, topic, PARTITIONS)) < 0:
                writer.write(1)
            writer.write(BEFORE_S)
            broken = stack.enter_context(ExitStack())
            broken.enter_context(cut)
            writer.write(tail_s)
            lab.cluster.kill("eu")
            eu_members.abandon()
            eu_read = eu_members.committed_values
        writer.abandon()
        acknowledged = {*writer.offsets}
        start = time.monotonic()
        us_writer = Writer(lab.only("us"), topic, PARTITIONS, "us", enable_idempotence=True)
        outage_s = us_writer.write_until_acknowledged_anew()
        us_writer.write(1)
        us_writer.flush()
        there = {*all_values(lab, "us", topic)}
        behind = acknowledged - there
        assert bool(behind) or not tail_s, "nothing was left to arrive late"
        us_members = stack.enter_context(Members(lab.only("us"), group, topic))
        us_members.await_values({*us_writer.offsets})
        us_members.await_quiet()
        took_s = time.monotonic() - start
        assert there <= us_members.values | eu_read, "the group skipped records"
        again = len(us_members.values & eu_read)
        broken.close()
        lab.cluster.up()
        expected = acknowledged | us_writer.offsets.keys()
        caught_up_s = until(lambda: expected <= all_values(lab, "us", topic).keys(), "eu's last records are in us")
        until(lambda: expected <= all_values(lab, "eu", topic).keys(), "us's records are in eu")
        us_members.await_values(expected - eu_read)
        us_members.await_quiet()
        late = len(us_members.values & behind)
        check(history_in(lab, "us", topic, us_writer, us_members), Allowed(other_offsets=True))
    check(history_in(lab, "eu", topic, writer), Allowed())
    until(lambda: committed(lab.only("eu"), group, topic, PARTITIONS) != [-1001] * PARTITIONS, "the group is in eu")
    back = _returns(lab, topic, group, expected)
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "doubled": "0",
        "missing in us until eu was back": str(len(behind)),
        "of those read by us's group": str(late),
        "read again": f"{again} in us ({again / PARTITIONS / 50:.1f} s of writes), {back} back in eu",
        "writes stood still": f"{outage_s:.1f} s",
        "us group had all": f"{took_s:.1f} s",
        "caught up": f"{caught_up_s:.1f} s after eu was up",
    }


def new_topic(lab: Lab, name: str, partitions: int = PARTITIONS) -> str:
    """Create a topic in all clusters."""
    topic = unique_topic(name)
    create_topic(lab.only("eu"), topic, partitions)
    for region in lab.regions:
        until(partial(lab.internal_stats, region, topic, partitions - 1), f"the topic is in {region} too")
    return topic


def history_in(lab: Lab, region: str, topic: str, writer: Writer, members: Members | None = None) -> History:
    """The history of one cluster, with a producer and a group there."""
    logs = {
        number: read_all_values(lab.only(region), topic, number) for number in range(lab.partitions(region, topic))
    }
    if members is None:
        return History(writer.writes, logs)
    return History(writer.writes, logs, [*members.reads], [*members.commits])


def _returns(lab: Lab, topic: str, group: str, expected: set[bytes]) -> int:
    """The number of records that the group reads again in eu after it read them in us. It skips none."""
    last = Sender(lab.only("eu"), topic)
    last.send([b"last"])
    last.flush()
    time.sleep(SNAPSHOTS_S)
    with Members(lab.only("eu"), group, topic) as members:
        members.await_values({b"last"})
        members.await_quiet()
        return len(members.values & expected)


SNAPSHOTS_S = 8.0
"""The time in which the group's offsets in us reach eu."""


def write_in_both(lab: Lab) -> Row:
    """Both regions write. Each region has every record once, and a producer's records in their order."""
    return write_in_all(lab)


def write_in_all(lab: Lab) -> Row:
    """All regions write. Each region has every record once, and a producer's records in their order."""
    topic = new_topic(lab, "all", 1)
    writers = {region: Writer(lab.only(region), topic, 1, region, enable_idempotence=True) for region in lab.regions}
    for _ in range(250):
        for writer in writers.values():
            writer.write_one()
        time.sleep(0.01)
    for writer in writers.values():
        writer.flush()
        writer.check_no_errors()
    writes = [write for writer in writers.values() for write in writer.writes]
    expected = {write.value for write in writes}
    settled_s = until(
        lambda: all(expected == all_values(lab, region, topic).keys() for region in writers), "all have all"
    )
    logs = {region: read_all_values(lab.only(region), topic) for region in writers}
    for log in logs.values():
        check(History(writes, {0: log}), Allowed(other_offsets=True))
    at = {region: {value: offset for offset, value in log} for region, log in logs.items()}
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "doubled": "0",
        "all had all": f"{settled_s:.1f} s",
        "records at another offset in us": str(sum(at["eu"][value] != at["us"][value] for value in expected)),
    }


def all_values(lab: Lab, region: str, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for number in range(lab.partitions(region, topic)):
        found.update(value for _, value in read_all_values(lab.only(region), topic, number))
    return found
