"""Trials of a stretched cluster: losing a bookie, losing a region, and having it back."""

from __future__ import annotations

import re
import time

from tests.integration.confluent import committed, create_topic, read_all
from tests.regions.lab import Lab, Writer, number_of, until
from tests.regions.member import Members
from tests.support.names import unique_topic

Row = dict[str, str]
PARTITIONS = 4
BEFORE_S = 3.0
GROUP = "group"


def lose_a_region(lab: Lab, lost: str = "eu", left: str = "us") -> Row:
    """Everything of a region is killed at once under load. Clients carry on where they were, by the other haproxy."""
    topic = unique_topic("region-loss")
    bootstrap = lab.bootstrap(lost)
    create_topic(bootstrap, topic, PARTITIONS)
    writer = Writer(bootstrap, topic, PARTITIONS, enable_idempotence=True)
    with Members(bootstrap, GROUP, topic, count=1) as members:
        writer.write(BEFORE_S)
        members.await_values(1)
        before = committed(bootstrap, GROUP, topic, PARTITIONS)
        lab.cluster.kill(lost)
        outage_s = writer.write_until_acknowledged_anew()
        writer.flush()
        writer.check_no_errors()
        written = sum(writer.acknowledged)
        consumed_s = members.await_values(written)
    _check_logs(lab.only(left), topic, writer)
    after = committed(lab.only(left), GROUP, topic, PARTITIONS)
    assert all(new >= max(old, 0) for old, new in zip(before, after, strict=True)), "commits went back"
    assert sum(after) == written
    return {
        "acknowledged": str(written),
        "lost": "0",
        "doubled": "0",
        "re-read": str(members.read - written),
        "writes stood still": f"{outage_s:.1f} s",
        "group had all": f"{consumed_s:.1f} s after that",
    }


def _check_logs(bootstrap: str, topic: str, writer: Writer) -> None:
    """Each acknowledged record is at the offset of its acknowledgement, and nothing is there twice."""
    for number, sender in enumerate(writer.senders):
        values = read_all(bootstrap, topic, number)
        assert all(values[offset] == value for value, offset in sender.offsets.items())
        assert len(values) == len(sender.offsets), "some records are there twice"
        assert values == sorted(values, key=number_of), "order"


def region_returns(lab: Lab, lost: str = "eu") -> Row:
    """What was killed is started again; the namespace goes back to its primary region."""
    topic = unique_topic("region-return")
    create_topic(lab.bootstrap("us"), topic, PARTITIONS)
    writer = Writer(lab.bootstrap("us"), topic, PARTITIONS, enable_idempotence=True)
    writer.write_until_acknowledged_anew()
    start = time.monotonic()
    lab.cluster.up()
    up_s = time.monotonic() - start
    back_s = until(lambda: lab.serving_region(topic) == lost, f"the namespace is served from {lost}")
    pause_s = writer.write_until_acknowledged_anew()
    writer.flush()
    writer.check_no_errors()
    _check_logs(lab.only(lost), topic, writer)
    return {
        "acknowledged": str(sum(writer.acknowledged)),
        "lost": "0",
        "doubled": "0",
        "region was up": f"{up_s:.1f} s",
        "namespace was back": f"{back_s:.1f} s after that",
        "writes stood still": f"{pause_s:.1f} s",
    }


def lose_a_bookie(lab: Lab) -> Row:
    """What it had is copied to another one, of its own accord; of a ledger that is still written, when that ends."""
    topic = unique_topic("bookie-loss")
    bootstrap = lab.bootstrap("eu")
    create_topic(bootstrap, topic, 1)
    writer = Writer(bootstrap, topic, 1, enable_idempotence=True)
    writer.write(BEFORE_S)
    writer.flush()
    lab.unload(topic)  # which closes the ledger
    bookie = next(bookie for bookie in _bookies(lab, topic)[0] if bookie.startswith("127.0.1."))
    name = next(node.name for node in lab.topology.nodes if lab.places.of(node).at() == bookie)
    lab.cluster.kill(name)
    pause_s = writer.write_until_acknowledged_anew()
    copied_s = until(lambda: all(bookie not in each for each in _bookies(lab, topic)), "copied again")
    writer.flush()
    writer.check_no_errors()
    _check_logs(bootstrap, topic, writer)
    lab.cluster.start(name)
    return {
        "acknowledged": str(sum(writer.acknowledged)),
        "lost": "0",
        "doubled": "0",
        "writes stood still": f"{pause_s:.1f} s",
        "two copies again": f"{copied_s:.1f} s",
    }


def _bookies(lab: Lab, topic: str) -> list[list[str]]:
    """Of each segment of the topic's closed ledgers."""
    ledgers = lab.internal_stats("eu", topic, metadata="true")["ledgers"][:-1]
    found = [re.findall(r"\[([\d.:, ]+)\]", ledger["metadata"]) for ledger in ledgers]
    return [segment.split(", ") for segments in found for segment in segments]
