"""The leaders that a gateway at a single address remembers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gateway.forwarding.fleet_leaders import FleetLeaders
from gateway.requests.cluster import Cluster
from gateway.topics.topic_names import MAX_NAME_LENGTH
from tests.unit.gateway.fleet.fleet_scene import member_of

OTHER = member_of("other", 1)


class Fleet:
    epoch = 1

    def __init__(self) -> None:
        self.asked = 0

    def leader(self, topic: str, partition: int) -> object:
        self.asked += 1
        return OTHER


@pytest.mark.parametrize(
    ("name", "times"),
    [("x" * MAX_NAME_LENGTH, 1), ("x" * (MAX_NAME_LENGTH + 1), 2), ("\U0001f600", 2)],
    ids=["as long as a topic's", "longer", "no topic's"],
)
def test_only_names_that_topics_may_have_are_remembered(name: str, times: int) -> None:
    """A request may name what does not exist, and a name may have 32 KB."""
    fleet = Fleet()
    leaders = FleetLeaders(cast(Cluster, SimpleNamespace(fleet=fleet, node_id=0)))
    assert leaders.of_partition(name, 0) == leaders.of_partition(name, 0) == OTHER
    assert fleet.asked == times
