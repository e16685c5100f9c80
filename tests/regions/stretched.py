"""Trials of a stretched cluster: losing a bookie, losing a region, and the region's return."""

from __future__ import annotations

import time

from deploy.topology.description import Kind
from tests.integration.confluent import create_topic, read_all
from tests.regions.bookkeeper import bookies_of
from tests.regions.lab import Lab, Writer, until
from tests.regions.traffic import BEFORE_S, PARTITIONS, Traffic
from tests.support.names import unique_topic
from tests.support.traffic.history import History, check

Row = dict[str, str]


def lose_a_region(lab: Lab) -> Row:
    """The serving region is killed under load. Clients go on through the other haproxy."""
    with Traffic(lab, "region-loss") as traffic:
        lost = lab.serving_region(traffic.topic)
        began = time.monotonic()
        lab.cluster.kill(lost)
        outage_s = traffic.writer.write_until_acknowledged_anew()
        consumed_s = traffic.finish()
        no_coordinator_s = traffic.probe.pause_s(began)
    history = traffic.check(lab.other_region(lost))
    return {
        "acknowledged": str(len(history.writes)),
        "lost": "0",
        "doubled": "0",
        "read again": str(len(history.reads) - len(history.writes)),
        "writes stood still": f"{outage_s:.1f} s",
        "group had all": f"{consumed_s:.1f} s after that",
        "group without coordinator": f"{no_coordinator_s:.1f} s",
    }


def _check_logs(bootstrap: str, topic: str, writer: Writer) -> None:
    logs = {number: [*enumerate(read_all(bootstrap, topic, number))] for number in range(len(writer.senders))}
    check(History(writer.writes, logs))


def region_returns(lab: Lab, primary: str = "eu") -> Row:
    """The killed region is started again. The namespace goes back to its primary region."""
    topic = unique_topic("region-return")
    create_topic(lab.bootstrap("us"), topic, PARTITIONS)
    writer = Writer(lab.bootstrap("us"), topic, PARTITIONS, enable_idempotence=True)
    writer.write_until_acknowledged_anew()
    start = time.monotonic()
    lab.cluster.up()
    up_s = time.monotonic() - start
    back_s = until(lambda: lab.serving_region(topic) == primary, f"the namespace is served from {primary}")
    pause_s = writer.write_until_acknowledged_anew()
    writer.flush()
    writer.check_no_errors()
    _check_logs(lab.only(primary), topic, writer)
    return {
        "acknowledged": str(sum(writer.acknowledged)),
        "lost": "0",
        "doubled": "0",
        "region was up": f"{up_s:.1f} s",
        "namespace was back": f"{back_s:.1f} s after that",
        "writes stood still": f"{pause_s:.1f} s",
    }


def lose_a_bookie(lab: Lab) -> Row:
    """A bookie is killed. Its entries are copied to another bookie, the ledger that is being written included."""
    topic = unique_topic("bookie-loss")
    bootstrap = lab.bootstrap("eu")
    create_topic(bootstrap, topic, 1)
    writer = Writer(bootstrap, topic, 1, enable_idempotence=True)
    writer.write(BEFORE_S)
    writer.flush()
    lab.unload(topic)  # which closes the ledger
    by_address = {lab.places.of(node).at(): node.name for node in lab.topology.of(Kind.BOOKIE, region="eu")}
    bookie = next(bookie for bookie in bookies_of(lab, topic)[0] if bookie in by_address)
    name = by_address[bookie]
    killed = time.monotonic()
    lab.cluster.kill(name)
    pause_s = writer.write_until_acknowledged_anew()
    until(lambda: all(bookie not in each for each in bookies_of(lab, topic)), "copied again")
    copied_s = time.monotonic() - killed
    region_of = {lab.places.of(node).at(): node.region for node in lab.topology.of(Kind.BOOKIE)}
    spread = all(len({region_of[each] for each in segment}) > 1 for segment in bookies_of(lab, topic))
    assert spread or len(by_address) == 1, "all copies are in one region"
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
        "in both regions": "yes" if spread else "no",
    }
