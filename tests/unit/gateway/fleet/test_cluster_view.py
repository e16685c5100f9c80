"""The fleet as one of several clusters sees it."""

from __future__ import annotations

from coordinator.fleet.leadership import PartitionRole
from coordinator.fleet.messages import Deletion, LogPosition, Member, Snapshot
from coordinator.topics import DeletedTopic
from gateway.fleet.cluster_view import ClusterView
from gateway.fleet.fleet import Fleet
from gateway.fleet.listener import FleetListener
from tests.unit.gateway.fleet.fleet_scene import OWN, fleet_of, member_of

ACME, OTHER = "acme/orders", "other/orders"
TOPICS = [f"topic-{number}" for number in range(40)]


def serving(incarnation: str, node_id: int, *clusters: str) -> Member:
    return member_of(incarnation, node_id).model_copy(update={"clusters": clusters})


def fleet(*clusters: str) -> Fleet:
    """Three gateways; the last one may lack clusters."""
    return fleet_of(
        [serving(OWN, 0, "acme/*", OTHER), serving("b", 1, "acme/*", OTHER), serving("c", 2, *clusters)], held=True
    )


class Heard(FleetListener):
    def __init__(self) -> None:
        self.deleted: list[DeletedTopic] = []
        self.changes = 0

    def topics_deleted(self, topics: tuple[DeletedTopic, ...]) -> None:
        self.deleted += topics

    def leaders_changed(self) -> None:
        self.changes += 1


def placed(view: ClusterView | Fleet) -> list[int]:
    leaders = [view.leader(topic, 0) for topic in TOPICS]
    return [-1 if leader is None else leader.node_id for leader in leaders]


async def test_each_cluster_is_placed_by_itself() -> None:
    """Otherwise the first partition of every `__consumer_offsets` would be on one gateway."""
    all_three = fleet("acme/*", OTHER)
    acme, other = ClusterView(all_three, ACME), ClusterView(all_three, OTHER)
    assert {*placed(acme)} == {*placed(other)} == {0, 1, 2}
    assert placed(acme) != placed(other)
    assert placed(all_three) not in (placed(acme), placed(other))
    for topic, leader in zip(TOPICS, placed(acme), strict=True):
        assert acme.leads(topic, 0) == (leader == 0)
        assert (acme.role(topic, 0) is PartitionRole.LEADING) == (leader == 0)
        assert all_three.leader(f"{ACME}/{topic}", 0) == acme.leader(topic, 0)


async def test_there_are_no_leaders_while_a_member_does_not_serve_the_cluster() -> None:
    two = fleet(OTHER)
    acme, other = ClusterView(two, ACME), ClusterView(two, OTHER)
    assert {*placed(acme)} == {-1} and {*placed(other)} == {0, 1, 2}
    assert not any(acme.leads(topic, 0) for topic in TOPICS)
    assert {acme.role(topic, 0) for topic in TOPICS} == {PartitionRole.ELSEWHERE}
    assert [member.node_id for member in acme.members] == [0, 1]


async def test_it_is_looked_again_when_members_change() -> None:
    two = fleet(OTHER)
    acme, heard = ClusterView(two, ACME), Heard()
    acme.subscribe(heard)
    assert two._membership is not None
    states = two._membership.roster.members
    states[2] = states[2].model_copy(update={"member": serving("c", 2, ACME)})
    for listener in two._listeners:
        listener.leaders_changed()
    assert heard.changes == 1 and {*placed(acme)} == {0, 1, 2}


async def test_deletions_are_a_clusters_own() -> None:
    """In the log they have the cluster's name; older gateways treat them as unknown topics."""
    all_three = fleet("acme/*", OTHER)
    acme, other = ClusterView(all_three, ACME), ClusterView(all_three, OTHER)
    of_acme, of_other, of_fleet = Heard(), Heard(), Heard()
    acme.subscribe(of_acme)
    other.subscribe(of_other)
    all_three.subscribe(of_fleet)
    gone = DeletedTopic("t", b"i" * 16, 5)
    acme.announce_deletion(gone)
    assert [topic.name for topic in all_three._deletions._unread_s] == ["acme/orders/t"]
    snapshot = Snapshot(epoch=1, position=None, members=())
    message = Deletion(
        topics=("acme/orders/t",), topic_ids={"acme/orders/t": gone.topic_id.hex()}, deleted_ms=5, snapshot=snapshot
    )
    all_three._read(LogPosition(1, 2), message)
    assert of_acme.deleted == [gone] and not of_other.deleted
    assert not all_three._deletions._unread_s
    assert [topic.name for topic in of_fleet.deleted] == ["acme/orders/t"]


async def test_its_id_is_made_of_the_fleets() -> None:
    all_three = fleet("acme/*", OTHER)
    all_three.cluster_id = "a"
    ids = {ClusterView(all_three, ACME).cluster_id, ClusterView(all_three, OTHER).cluster_id}
    assert ids == {ClusterView(all_three, ACME).cluster_id, ClusterView(all_three, OTHER).cluster_id}
    assert len(ids) == 2 and all(len(each) == 22 for each in ids)
    all_three.cluster_id = "b"
    assert ClusterView(all_three, ACME).cluster_id not in ids


def test_what_a_member_serves() -> None:
    member = serving("a", 1, "acme/*", OTHER)
    assert member.serves(ACME) and member.serves(OTHER)
    assert not member.serves("other/else") and not member.serves("ac/me")
