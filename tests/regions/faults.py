"""Trials of a stretched cluster: nodes are suspended or cut off, and recover by themselves.

The region of these trials is the one that serves the namespace.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from deploy.topology.description import Kind
from tests.integration.confluent import create_topic, read_all
from tests.regions.lab import Lab, until
from tests.regions.traffic import Traffic
from tests.support.names import unique_topic

Row = dict[str, str]
HOLD_S = 25.0
"""The minimal duration of a fault: longer than sessions, leases, and the timeouts of requests."""
BRIEF_S = 8.0
"""Longer than leases and the timeouts of requests, but shorter than the timeouts of connections."""
AFTER_S = 3.0
WHOLE_S = 300.0
"""All processes of a region may have to start."""


def pause_a_broker(lab: Lab) -> Row:
    """The broker that serves the namespace is stopped (SIGSTOP), and continued later."""
    return _endure(lab, "broker-pause", lambda traffic: lab.paused(lab.serving_broker(traffic.topic).name))


def pause_a_gateway(lab: Lab) -> Row:
    """The gateway that the clients use is stopped, and continued later."""
    return _endure(lab, "gateway-pause", lambda _: lab.paused("gateway1-eu"))


def pause_a_region(lab: Lab) -> Row:
    """All processes of the serving region are stopped, and continued later."""
    return _endure(lab, "region-pause", lambda traffic: lab.paused(lab.serving_region(traffic.topic)))


def cut_a_gateway_off(lab: Lab) -> Row:
    """A gateway reaches no broker for 25 s. Clients and haproxy still reach it."""
    return _endure(lab, "gateway-cut", lambda traffic: _cut_leader_off(lab, traffic.topic))


def cut_a_gateway_off_briefly(lab: Lab) -> Row:
    """A gateway reaches no broker for 8 s. What it had sent may arrive after another gateway has written the same."""
    return _endure(lab, "brief-cut", lambda traffic: _cut_leader_off(lab, traffic.topic), hold_s=BRIEF_S)


def cut_between_regions(lab: Lab) -> Row:
    """The regions do not reach each other. Both reach the witness, and clients reach both."""
    return _endure(lab, "sea-cable", lambda _: lab.cut_between("eu", "us"))


def cut_a_region_off(lab: Lab) -> Row:
    """The serving region reaches neither the other region nor the witness. Clients reach both regions."""

    def fault(traffic: Traffic) -> AbstractContextManager[None]:
        region = lab.serving_region(traffic.topic)
        return lab.cut(lambda node: node.region == region, lambda node: node.region != region)

    return _endure(lab, "island", fault)


def _endure(
    lab: Lab,
    name: str,
    fault: Callable[[Traffic], AbstractContextManager[None]],
    hold_s: float = HOLD_S,
) -> Row:
    """Clients run during the fault and after it, and their history has no violations."""
    with Traffic(lab, name) as traffic:
        writer = traffic.writer
        began = time.monotonic()
        with fault(traffic):
            outage_s = writer.write_until_acknowledged_anew()
            writer.write(hold_s - (time.monotonic() - began))
            within_s = traffic.members.await_values({*writer.offsets}) if hold_s >= HOLD_S else None
        healing_s = writer.write_until_acknowledged_anew()
        writer.write(AFTER_S)
        traffic.finish()
        no_coordinator_s = traffic.probe.pause_s(began)
    whole_s = until(lambda: _serves_all(lab), "both regions serve everything again", WHOLE_S)
    history = traffic.check(lab.serving_region(traffic.topic))
    lab.bring_home(traffic.topic)  # the next trial removes the same region
    return {
        "acknowledged": str(len(history.writes)),
        "lost": "0",
        "doubled": "0",
        "read again": str(len(history.reads) - len(history.writes)),
        "writes stood still": f"{outage_s:.1f} s, and {healing_s:.1f} s when it was over",
        "group had all": "when it was over" if within_s is None else f"{within_s:.1f} s after {hold_s:.0f} s",
        "group without coordinator": f"{no_coordinator_s:.1f} s",
        "all was well": f"{whole_s:.1f} s after that",
        "coordinated by": " then ".join(traffic.probe.coordinators),
    }


def _serves_all(lab: Lab) -> bool:
    """Brokers that were considered dead need a moment until they serve again, even if no client waits for them."""
    lab.start_ended()
    assert lab.are_all_registered(), "some brokers are not registered"
    for region in ("eu", "us"):
        topic = unique_topic("whole")
        create_topic(lab.only(region), topic)
        assert read_all(lab.only(region), topic) == [], region
    return True


def _cut_leader_off(lab: Lab, topic: str) -> AbstractContextManager[None]:
    gateway = lab.leading_gateway(topic)
    return lab.cut(lambda node: node is gateway, lambda node: node.kind is Kind.BROKER)
