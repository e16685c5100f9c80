"""The leaders that a gateway advertises while Pulsar acknowledges none of its writes: its successors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.leadership import LeadershipState
from coordinator.fleet.messages import Address
from coordinator.fleet.placement import PartitionKey, Placement
from gateway.fleet.fleet import Fleet
from gateway.fleet.fleet_log import FleetLog
from gateway.requests.brokers import NOBODY, Brokers
from gateway.requests.call import Call
from gateway.requests.context import Listener
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.fleet import fleet_scene
from tests.unit.gateway.fleet.fleet_scene import member_of

OWN, OTHER = 1, 2
ADDRESSES = {"inside": Address(host="h", port=9092)}


def fleet_of(
    silence_s: float, held: bool, node_ids: tuple[int, ...], racks: Mapping[int, str | None] | None = None
) -> Fleet:
    """As gateway 1 knows it. Gateway n leads partition n."""
    members = [
        member_of(str(each), each).model_copy(update={"addresses": ADDRESSES, "rack": (racks or {}).get(each)})
        for each in node_ids
    ]
    fleet = fleet_scene.fleet_of(members, held=held, silence_s=silence_s, own=str(OWN))
    assert fleet._membership is not None
    fleet._membership.roster.placement.leader = lambda key: key[1]  # type: ignore[method-assign]
    return fleet


def brokers_of(fleet: Fleet, listener: str | Listener = "inside") -> Brokers:
    context = SimpleNamespace(listener=Listener(listener) if isinstance(listener, str) else listener)
    return Brokers(cast(Call, SimpleNamespace(cluster=SimpleNamespace(fleet=fleet), context=context)))


def leaders(fleet: Fleet) -> tuple[int, ...]:
    named = [brokers_of(fleet).leader("t", partition) for partition in (OWN, OTHER)]
    return tuple(node.node_id for node in named if node is not None)


@pytest.mark.parametrize(
    ("silence_s", "held", "expected"),
    [
        pytest.param(9.0, True, (OWN, OTHER), id="its lease holds"),
        pytest.param(0.1, False, (OWN, OTHER), id="other writes are confirmed"),
        pytest.param(9.0, False, (OTHER, OTHER), id="nothing is confirmed"),
        pytest.param(math.inf, False, (OTHER, OTHER), id="nothing ever was"),
    ],
)
async def test_advertised_leaders(silence_s: float, held: bool, expected: tuple[int, ...]) -> None:
    assert leaders(fleet_of(silence_s, held, (OWN, OTHER))) == expected


async def test_one_that_is_alone_waits_for_pulsar() -> None:
    node = brokers_of(fleet_of(9.0, False, (OWN,))).leader("t", OWN)
    assert node is not None
    assert node.node_id == OWN


async def test_when_all_gateways_are_cut_off_the_leader_of_the_epoch_is_advertised() -> None:
    """The others do the same: a client that sees two leaders in one epoch may use the wrong one."""
    fleet = fleet_of(9.0, False, (OWN, OTHER))
    fleet._log = cast(FleetLog, SimpleNamespace(is_lost_by_all=True))
    assert leaders(fleet) == (OWN, OTHER)


async def test_its_partitions_go_to_all_others_as_without_it() -> None:
    others = (2, 3, 4)
    brokers, placement = brokers_of(fleet_of(9.0, False, (OWN, *others))), Placement(others)
    for number in range(20):
        node = brokers.leader(f"t{number}", OWN)
        assert node is not None
        assert node.node_id == placement.leader(PartitionKey(f"t{number}", OWN))


async def test_what_it_did_lead_it_still_answers_for() -> None:
    """Plain reading and writing need no lease, if clients stay."""
    fleet = fleet_of(9.0, False, (OWN, OTHER))
    assert fleet.state is LeadershipState.PRESUMED_DEAD
    assert fleet.leads("t", OWN)


async def test_no_client_is_sent_to_another_listener() -> None:
    brokers = brokers_of(fleet_of(0.1, True, (OWN, OTHER)), listener="encrypted")
    assert brokers.nodes == [] and brokers.own is None and brokers.controller_id == -1
    assert brokers.leader("t", OTHER) is None and brokers.hint("t", OTHER) is None
    assert brokers.leader_or_error("t", OTHER) == (NOBODY, ErrorCode.LISTENER_NOT_FOUND)


def racked_fleet(racks: dict[int, str | None]) -> Fleet:
    return fleet_of(0.1, True, tuple(racks), racks)


async def test_each_rack_has_a_reader_of_every_partition() -> None:
    brokers = brokers_of(racked_fleet({1: "a", 2: "b", 3: "b"}))
    assert brokers.replication_factor == 2
    readers = {number: brokers.reader("t", number, "b") for number in range(50)}
    assert {*readers.values()} == {2, 3}, "the gateways of a rack share its partitions"
    for number, reader in readers.items():
        assert brokers.replicas("t", number, leader_id=1) == [1, reader]
        assert brokers.replicas("t", number, leader_id=2) == [2, 1]
    assert brokers.reader("t", 0, "c") is None


@pytest.mark.parametrize("racks", [{1: None, 2: None}, {1: "a", 2: "a"}, {1: "a", 2: None}])
async def test_without_several_racks_leaders_are_the_only_replicas(racks: dict[int, str | None]) -> None:
    brokers = brokers_of(racked_fleet(racks))
    assert brokers.replication_factor == 1
    assert brokers.replicas("t", 0, leader_id=1) == [1] and brokers.reader("t", 0, "a") is None


async def test_clients_of_a_host_name_get_that_host_name() -> None:
    """Otherwise its next connection would be for another cluster."""
    listener = Listener("inside", single_address=True, cluster_hosts={"orders.example.com": "acme/orders"})
    fleet = fleet_of(0.1, True, (OWN, OTHER))
    named = brokers_of(fleet, listener.as_asked_for("orders.example.com"))
    assert [(node.node_id, node.host, node.port) for node in named.nodes] == [(0, "orders.example.com", 9092)]
    others = brokers_of(fleet, listener)
    assert [node.host for node in others.nodes] == ["h"] and others.perspective != named.perspective
