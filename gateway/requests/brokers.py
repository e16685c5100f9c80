"""The brokers of a cluster as a client sees them, with the addresses of its listener, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache

from coordinator.fleet.messages import Member
from coordinator.fleet.placement import PartitionKey, Placement
from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.errors import KafkaError
from gateway.requests.call import Call
from gateway.requests.cluster import Node
from protocol.kafka.errors import ErrorCode

RECORDS_EPOCH = 0
"""The leader epoch of all records: logs are never truncated at their end, whichever gateway leads them."""
NOBODY = Node(-1, "", -1)
SINGLE_NODE_ID = 0
"""The id of the one broker that clients see at a single address. Kafka's protocol would allow several brokers at one
address, but librdkafka before 2.4 treats brokers with the same address as one broker, whose id keeps changing."""


class Brokers:
    """Create a new object after each await: some properties are cached, and the fleet may have changed."""

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
        """The lowest id, so that all gateways agree. Clients send it requests that any gateway can handle."""
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
        """The properties of a client on which its view of the cluster depends."""
        return self._listener, self._is_single, self._host

    @property
    def view(self) -> Hashable:
        """While this value is the same, clients of one perspective get the same answer for each partition."""
        fleet = self._fleet
        members = tuple(member.incarnation for member in fleet.members)
        return fleet.epoch, fleet.node_id, members, self._advertises_itself

    @property
    def epoch(self) -> int:
        return self._fleet.epoch

    def leader(self, topic: str, partition: int) -> Node | None:
        """None while there is no leader, or if the leader does not have the client's listener."""
        member = self._leading_member(topic, partition)
        return None if member is None else self._node(member)

    def leader_or_error(self, topic: str, partition: int) -> tuple[Node, ErrorCode]:
        """The leader as Metadata returns it: NOBODY with the reason, LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND."""
        member = self._leading_member(topic, partition)
        if member is None:
            return NOBODY, ErrorCode.LEADER_NOT_AVAILABLE
        node = self._node(member)
        return (NOBODY, ErrorCode.LISTENER_NOT_FOUND) if node is None else (node, ErrorCode.NONE)

    def _leading_member(self, topic: str, partition: int) -> Member | None:
        """A gateway whose writes were not acknowledged for ``dead_after_ms`` advertises its successors as leaders.

        The other gateways take over by then, and clients that know no other gateway would stay with this one.
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
        """The factor of every partition, as clients see it: a gateway in each rack may serve consumers there."""
        return max(1, len(self._readers))

    def replicas(self, topic: str, partition: int, leader_id: int) -> list[int]:
        """The leader, and for each other rack the gateway that serves the partition to consumers there (KIP-392)."""
        if not self._readers:
            return [leader_id]
        key = self._fleet.key(topic, partition)
        own_rack = next((member.rack for member in self._fleet.members if member.node_id == leader_id), None)
        others = (placement.leader(key) for rack, placement in self._readers.items() if rack != own_rack)
        return [leader_id, *(node_id for node_id in others if node_id is not None)]

    def reader(self, topic: str, partition: int, rack: str) -> int | None:
        """The gateway of a rack that serves the partition to consumers there; None if there is no such gateway."""
        placement = self._readers.get(rack)
        return None if placement is None else placement.leader(self._fleet.key(topic, partition))

    @cached_property
    def _readers(self) -> Mapping[str, Placement]:
        """Placements by rack; empty at a single address and between gateways, where clients cannot choose."""
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
        """The leader, for a client that asked the wrong gateway (KIP-951); None if clients cannot choose a gateway."""
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
        """None if the member lacks the client's listener: another listener's address may be without encryption."""
        address = member.addresses.get(self._listener)
        if self._listener == FORWARDING_LISTENER:  # no client sees this address
            address = next(iter(member.addresses.values()))
        if address is None:
            return None
        if self._is_single:
            return Node(SINGLE_NODE_ID, self._host or address.host, address.port)
        return Node(member.node_id, address.host, address.port, member.rack)


@lru_cache(maxsize=4)
def _placements(nodes: tuple[tuple[str, int], ...]) -> Mapping[str, Placement]:
    """Placements by rack; empty if there is only one rack. They are cached because a placement caches its results."""
    racks: dict[str, list[int]] = {}
    for rack, node_id in nodes:
        racks.setdefault(rack, []).append(node_id)
    return {rack: Placement(node_ids) for rack, node_ids in racks.items()} if len(racks) > 1 else {}


def preferred_reader(call: Call, topic: str, partition: int, rack: str) -> int | None:
    """The gateway from which a consumer in a rack should fetch instead of this one, the leader (KIP-392)."""
    if rack == call.cluster.config.kafka.rack:
        return None
    reader = Brokers(call).reader(topic, partition, rack)
    return None if reader == call.cluster.node_id else reader


def may_read(call: Call, topic: str, partition: int, rack: str) -> bool:
    """This gateway serves the partition to consumers of its rack, though another gateway leads it."""
    return rack == call.cluster.config.kafka.rack and Brokers(call).reader(topic, partition, rack) == (
        call.cluster.node_id
    )


def check_leader(call: Call, topic: str, partition: int, client_epoch: int = -1, rack: str = "") -> None:
    """Raises KafkaError when another gateway leads the partition, or the client's leader epoch is not of this fleet.

    An epoch older than the current one is accepted: logs are never truncated at their end, so what the client knows
    from that epoch is still true. Consumers of this gateway's ``rack`` may read partitions that another gateway leads.
    """
    fleet = call.cluster.fleet
    if not fleet.leads(topic, partition) and not (rack and may_read(call, topic, partition, rack)):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if client_epoch > fleet.epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if client_epoch < -1:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
