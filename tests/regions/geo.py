"""Trials of two clusters that replicate to each other: losing one under load, having it back, writing in both."""

from __future__ import annotations

import time
from collections import Counter

from tests.integration.confluent import Sender, committed, create_topic, read_all_values
from tests.regions.lab import Lab, Writer, number_of, until
from tests.regions.member import Members
from tests.support.names import unique_topic

Row = dict[str, str]
PARTITIONS = 2
BEFORE_S = 8.0
GROUP = "travelling"
SETTLE_S = 60.0


def lose_a_region(lab: Lab) -> Row:
    """eu is killed under load and comes back; a group goes on in us, then in eu again."""
    topic = unique_topic("geo-loss")
    create_topic(lab.only("eu"), topic, PARTITIONS)
    until(lambda: lab.internal_stats("us", topic, PARTITIONS - 1), "the topic is in us too")
    writer = Writer(lab.only("eu"), topic, PARTITIONS)
    with Members(lab.only("eu"), GROUP, topic) as eu_members:
        while min(committed(lab.only("us"), GROUP, topic, PARTITIONS)) < 0:
            writer.write(1)
        writer.write(BEFORE_S)
        lab.cluster.kill("eu")
        eu_members.abandon()
        eu_read = eu_members.committed_values
    writer.abandon()
    acknowledged = set(writer.offsets)
    start = time.monotonic()
    us_writer = Writer(lab.only("us"), topic, PARTITIONS, "us", enable_idempotence=True)
    outage_s = us_writer.write_until_acknowledged_anew()
    us_writer.write(1)
    us_writer.flush()
    there = _all_values(lab, "us", topic)
    behind = len(acknowledged - there.keys())
    with Members(lab.only("us"), GROUP, topic) as us_members:
        us_members.await_values({*us_writer.offsets})
        us_members.await_quiet()
        took_s = time.monotonic() - start
        us_read = us_members.values
        assert there.keys() <= us_read | eu_read, "the group skipped records"
        again = len(us_read & eu_read)
        lab.cluster.up()
        expected = acknowledged | us_writer.offsets.keys()
        caught_up_s = until(lambda: expected <= _all_values(lab, "us", topic).keys(), "eu's last records are in us")
        until(lambda: expected <= _all_values(lab, "eu", topic).keys(), "us's records are in eu")
        us_members.await_quiet()
        assert expected <= us_members.values | eu_read, "the group skipped records that came late"
    doubled = sum(_all_values(lab, "us", topic).values()) - len(_all_values(lab, "us", topic))
    until(lambda: committed(lab.only("eu"), GROUP, topic, PARTITIONS) != [-1001] * PARTITIONS, "the group is in eu")
    back = _returns(lab, topic, expected)
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "missing in us until eu was back": str(behind),
        "doubled": str(doubled),
        "re-read in us": f"{again} ({again / PARTITIONS / 50:.1f} s of writes)",
        "us took writes": f"{outage_s:.1f} s",
        "us group had all": f"{took_s:.1f} s",
        "caught up": f"{caught_up_s:.1f} s after eu was up",
        "re-read back in eu": str(back),
    }


def _returns(lab: Lab, topic: str, expected: set[bytes]) -> int:
    """How many of the records that the group had read in us it reads again in eu; it skips none."""
    last = Sender(lab.only("eu"), topic)
    last.send([b"last"])
    last.flush()
    time.sleep(SNAPSHOTS_S)
    with Members(lab.only("eu"), GROUP, topic) as members:
        members.await_values({b"last"})
        members.await_quiet()
        return len(members.values & expected)


SNAPSHOTS_S = 8.0
"""For the group's place in us to reach eu."""


def write_in_both(lab: Lab) -> Row:
    """Each region has every record of both, once; in each, a producer's records keep their order."""
    topic = unique_topic("both")
    create_topic(lab.only("eu"), topic, 1)
    until(lambda: lab.internal_stats("us", topic), "the topic is in us too")
    writers = {
        region: Writer(lab.only(region), topic, 1, region, enable_idempotence=True) for region in ("eu", "us")
    }
    for _ in range(250):
        for writer in writers.values():
            writer.write_one()
        time.sleep(0.01)
    expected: set[bytes] = set()
    for writer in writers.values():
        writer.flush()
        writer.check_no_errors()
        expected |= writer.offsets.keys()
    settled_s = until(
        lambda: all(expected == _all_values(lab, region, topic).keys() for region in writers), "both have all"
    )
    doubled = 0
    offsets = {}
    for region in writers:
        found = read_all_values(lab.only(region), topic)
        doubled += len(found) - len(expected)
        offsets[region] = {value: offset for offset, value in found}
        for name in writers:
            own = [number_of(value) for _, value in found if value.startswith(name.encode())]
            assert own == sorted(own), f"order of {name}'s records in {region}"
    moved = sum(offsets["eu"][value] != offsets["us"][value] for value in expected)
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "doubled": str(doubled),
        "both had all": f"{settled_s:.1f} s",
        "records at another offset in us": str(moved),
    }


def _all_values(lab: Lab, region: str, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for number in range(lab.partitions(region, topic)):
        found.update(value for _, value in read_all_values(lab.only(region), topic, number))
    return found
