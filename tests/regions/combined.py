"""A trial of two stretched clusters that replicate to each other: records that eu acknowledged do not wait for eu."""

from __future__ import annotations

import time
from typing import Any

from tests.regions.geo import Row, all_values, history_in, new_topic
from tests.regions.lab import Lab, Writer, until
from tests.support.traffic.history import Allowed, History, check

PARTITIONS = 2
BEFORE_S = 5.0
AFTER_S = 3.0
IN_ORDER: dict[str, Any] = {"max_in_flight_requests_per_connection": 1}
"""A later request would overtake one that is sent again: the producers are not idempotent."""
HOME_S = 300.0
"""Replicators wait longer after each failed attempt."""


def lose_a_region(lab: Lab) -> Row:
    """Both regions write, and eu is killed. All that eu acknowledged reaches us while eu is away."""
    topic = new_topic(lab, "both-loss", PARTITIONS)
    writers = {region: Writer(lab.only(region), topic, PARTITIONS, region, **IN_ORDER) for region in ("eu", "us")}
    end = time.monotonic() + BEFORE_S
    while time.monotonic() < end:
        for writer in writers.values():
            writer.write(0.1)
    writers["us"].flush()
    lab.cluster.kill("eu")
    outage_s = writers["us"].write_until_acknowledged_anew()
    writers["us"].write(AFTER_S)
    writers["us"].flush()
    writers["us"].check_no_errors()
    writers["eu"].abandon()
    expected = {value for writer in writers.values() for value in writer.offsets}
    arrived_s = until(lambda: expected <= all_values(lab, "us", topic).keys(), "all of both is in us, without eu")
    lab.cluster.up()
    home_s = until(lambda: expected <= all_values(lab, "eu", topic).keys(), "all of both is in eu", HOME_S)
    for region, writer in writers.items():
        check(history_in(lab, region, topic, writer), Allowed(copies=True), where=f"{region}'s own records")
    writes = [write for writer in writers.values() for write in writer.writes]
    logs = {region: history_in(lab, region, topic, writers[region]).logs for region in writers}
    for region, log in logs.items():
        check(History(writes, log), Allowed(copies=True, other_offsets=True), where=f"everything, in {region}")
    doubled = sum(all_values(lab, "us", topic).values()) - len(all_values(lab, "us", topic))
    return {
        "acknowledged": str(len(expected)),
        "lost": "0",
        "doubled": f"{doubled} (producers that are not idempotent)",
        "writes stood still": f"{outage_s:.1f} s, in us",
        "all of eu was in us": f"{arrived_s:.1f} s after that, without eu",
        "all of us was in eu": f"{home_s:.1f} s after that was up",
    }
