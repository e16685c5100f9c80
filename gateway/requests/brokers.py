"""The brokers of a cluster as a client sees them, by the addresses of its listener, and who leads what."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache

from coordinator.fleet.messages import Member
from coordinator.fleet.placement import PartitionKey, Placement
from gateway.config import FORWARDING_LISTENER
from gateway.errors import KafkaError
from gateway.requests.call import Call
from gateway.requests.cluster import Node
from protocol.kafka.errors import ErrorCode

NOBODY = Node(-1, "", -1)
SINGLE_NODE_ID = 0
"""Of the one broker that clients see at a single address. Several at one address would be theirs in Kafka's protocol
too, but librdkafka before 2.4 takes brokers with the same address for one, whose id keeps changing."""


class Brokers:
    """Ask once a request: while it is answered, the fleet does not change."""

    def __init__(self, call: Call) -> None:
        self._fleet = call.cluster.fleet
        self._listener = call.context.listener.name
        self._is_single = call.context.listener.single_address
        self._host = call.context.listener.host

    @property
    def nodes(self) -> list[Node]:
        nodes = [node for member in self._fleet.members if (node := self._node(member)) is not None]
        return nodes[:1] if self._is_single else nodes

    @property
    def controller_id(self) -> int:
        """Where clients send what any gateway can do: the one with the lowest id, so that all agree."""
        return next((node.node_id for node in self.nodes), -1)

    @property
    def own(self) -> Node | None:
        """This gateway; None before it is a member."""
        mine = (member for member in self._fleet.members if self._is_single or member.node_id == self._fleet.node_id)
        return next((node for member in mine if (node := self._node(member)) is not None), None)

    @property
    def own_id(self) -> int:
        return SINGLE_NODE_ID if self._is_single else self._fleet.node_id

    @property
    def perspective(self) -> Hashable:
        """What of the client its view of the cluster depends on."""
        return self._listener, self._is_single, self._host

    @property
    def view(self) -> Hashable:
        """While it is the same, clients of one perspective are told the same of each partition."""
        fleet = self._fleet
        members = tuple(member.incarnation for member in fleet.members)
        return fleet.epoch, fleet.node_id, members, self._advertises_itself

    @property
    def epoch(self) -> int:
        return self._fleet.epoch

    def leader(self, topic: str, partition: int) -> Node | None:
        """None while there is no leader, or none that has the client's listener."""
        member = self._leading_member(topic, partition)
        return None if member is None else self._node(member)

    def leader_or_error(self, topic: str, partition: int) -> tuple[Node, ErrorCode]:
        """As Metadata tells it: NOBODY with the reason, LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND."""
        member = self._leading_member(topic, partition)
        if member is None:
            return NOBODY, ErrorCode.LEADER_NOT_AVAILABLE
        node = self._node(member)
        return (NOBODY, ErrorCode.LISTENER_NOT_FOUND) if node is None else (node, ErrorCode.NONE)

    def _leading_member(self, topic: str, partition: int) -> Member | None:
        """A gateway whose writes go unacknowledged for ``dead_after_ms`` advertises its successors as leaders.

        The others take over by then, and clients that know no other gateway would stay with this one.
        """
        member = self._fleet.leader(topic, partition)
        if member is None or member.node_id != self._fleet.node_id or self._advertises_itself:
            return member
        return self._successor(self._fleet.key(topic, partition))

    @cached_property
    def _advertises_itself(self) -> bool:
        return self._fleet.state.permissions.advertises_itself

    @property
    def replication_factor(self) -> int:
        """Of every partition, as clients see it: a gateway in each rack may serve its consumers."""
        return max(1, len(self._readers))

    def replicas(self, topic: str, partition: int, leader_id: int) -> list[int]:
        """The leader, and for each other rack the gateway that reads the partition for consumers there (KIP-392)."""
        if not self._readers:
            return [leader_id]
        key = self._fleet.key(topic, partition)
        own_rack = next((member.rack for member in self._fleet.members if member.node_id == leader_id), None)
        others = (placement.leader(key) for rack, placement in self._readers.items() if rack != own_rack)
        return [leader_id, *(node_id for node_id in others if node_id is not None)]

    def reader(self, topic: str, partition: int, rack: str) -> int | None:
        """The gateway of a rack that reads the partition for consumers there, if there is one."""
        placement = self._readers.get(rack)
        return None if placement is None else placement.leader(self._fleet.key(topic, partition))

    @cached_property
    def _readers(self) -> Mapping[str, Placement]:
        """By rack. At a single address, and between gateways, clients do not choose whom they ask."""
        if self._is_single or self._listener == FORWARDING_LISTENER:
            return {}
        return _placements(
            tuple(
                (member.rack, member.node_id)
                for member in self._fleet.members
                if member.rack is not None and self._listener in member.addresses
            )
        )

    def hint(self, topic: str, partition: int) -> Node | None:
        """The leader (KIP-951), for who asked the wrong gateway; at a single address there is no other to ask."""
        if self._is_single or self._listener == FORWARDING_LISTENER:
            return None
        return self.leader(topic, partition)

    def _successor(self, key: PartitionKey) -> Member | None:
        node_id = self._placement_of_others.leader(key)
        return next((member for member in self._fleet.members if member.node_id == node_id), None)

    @cached_property
    def _placement_of_others(self) -> Placement:
        return Placement([member.node_id for member in self._fleet.members if member.node_id != self._fleet.node_id])

    def _node(self, member: Member) -> Node | None:
        """None if it has no listener of the client's: another listener's address may be one without encryption."""
        address = member.addresses.get(self._listener)
        if self._listener == FORWARDING_LISTENER:  # no client sees it
            address = next(iter(member.addresses.values()))
        if address is None:
            return None
        if self._is_single:
            return Node(SINGLE_NODE_ID, self._host or address.host, address.port)
        return Node(member.node_id, address.host, address.port, member.rack)


@lru_cache(maxsize=4)
def _placements(nodes: tuple[tuple[str, int], ...]) -> Mapping[str, Placement]:
    """By rack; empty if there is one only. A placement remembers what it was asked."""
    racks: dict[str, list[int]] = {}
    for rack, node_id in nodes:
        racks.setdefault(rack, []).append(node_id)
    return {rack: Placement(node_ids) for rack, node_ids in racks.items()} if len(racks) > 1 else {}


def preferred_reader(call: Call, topic: str, partition: int, rack: str) -> int | None:
    """Whom a consumer in a rack is to ask instead of this gateway, which leads the partition (KIP-392)."""
    if rack == call.cluster.config.kafka.rack:
        return None
    reader = Brokers(call).reader(topic, partition, rack)
    return None if reader == call.cluster.node_id else reader


def may_read(call: Call, topic: str, partition: int, rack: str) -> bool:
    """This gateway reads the partition for consumers of its rack, though another one leads it."""
    return rack == call.cluster.config.kafka.rack and Brokers(call).reader(topic, partition, rack) == (
        call.cluster.node_id
    )


def check_leader(call: Call, topic: str, partition: int, client_epoch: int = -1, rack: str = "") -> None:
    """Raises KafkaError when another gateway leads the partition, or the client's leader epoch is not of this fleet.

    An older epoch than ours is fine: no log is ever cut back, so what the client knows from then still holds. Consumers
    of this gateway's ``rack`` may read what another one leads.
    """
    fleet = call.cluster.fleet
    if not fleet.leads(topic, partition) and not (rack and may_read(call, topic, partition, rack)):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if client_epoch > fleet.epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if client_epoch < -1:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
