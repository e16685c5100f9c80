"""A trial of a stretched cluster: a region is lost under transactions."""

from __future__ import annotations

import time

from tests.integration.confluent import create_topic
from tests.regions.lab import Lab
from tests.regions.stretched import Row
from tests.regions.traffic import PARTITIONS
from tests.support.names import unique_topic
from tests.support.traffic.transaction_history import Outcome, check
from tests.support.traffic.transactional_traffic import Traffic

WRITERS, COMMITS = 3, 20
WITHIN_S = 240.0
"""Time for takeovers, and for transactions that must time out before their producers continue."""


def lose_a_region_with_transactions(lab: Lab) -> Row:
    """The serving region is killed under transactional writers and read_committed readers of both regions.

    No aborted record is read, and no transaction is torn, lost, doubled or out of order.
    """
    topic = unique_topic("region-transactions")
    create_topic(lab.bootstrap("eu"), topic, PARTITIONS)
    with Traffic([lab.bootstrap("eu"), lab.bootstrap("us")], topic, PARTITIONS, WRITERS) as traffic:
        traffic.await_commits(COMMITS, WITHIN_S)
        lost = lab.serving_region(topic)
        began = time.monotonic()
        lab.cluster.kill(lost)
        traffic.await_commits(1, WITHIN_S)
        outage_s = time.monotonic() - began
        traffic.await_commits(COMMITS, WITHIN_S)
        counts = {outcome: sum(each) for outcome, each in traffic.counts().items()}
        history = traffic.stop()
    check(history)
    return {
        "transactions committed": str(counts[Outcome.COMMITTED.value]),
        "aborted": str(counts[Outcome.ABORTED.value]),
        "records read": str(len(history.reads)),
        "lost": "0",
        "doubled": "0",
        "all writers committed again": f"{outage_s:.1f} s",
    }
