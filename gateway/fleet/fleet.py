"""The gateways of one namespace: its members, the leader of each partition, and the role of this gateway."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping

import structlog

from coordinator.fleet.leadership import LeadershipState, PartitionRole, Silence
from coordinator.fleet.membership import Identity, Membership
from coordinator.fleet.messages import (
    NO_TRANSACTIONS,
    Address,
    Deletion,
    LogPosition,
    Member,
    Message,
    TopicStop,
    TopicStopped,
    Turn,
)
from coordinator.fleet.placement import PartitionKey
from coordinator.topics import DeletedTopic
from gateway.background import TaskGroup
from gateway.config.gateway_config import FleetSection
from gateway.fleet.clock import lease_now_ms
from gateway.fleet.deletions import Deletions
from gateway.fleet.eviction_check import EvictionCheck
from gateway.fleet.fleet_log import FleetLog, limit_retention, prepare_fleet_topic, read_cluster_id
from gateway.fleet.listener import FleetListener
from gateway.fleet.peers import Peers
from gateway.fleet.topic_stops import STOP_S, TopicStops
from gateway.fleet.topic_turns import TopicTurns
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

TICKS_A_HEARTBEAT = 5
"""How often per heartbeat interval the fleet checks whether a message is due."""
RELEASE_S = 5.0
"""A partition not released by then is fenced by its next leader; batches in flight to plain partitions are stopped."""
JOIN_CHECK_S = 0.005
EVICTED_S = 180.0
"""How long the producers of an evicted gateway are shut out. Brokers close an unresponsive connection sooner."""

log = structlog.get_logger()


class NodeIdInUse(Exception):
    """Another live gateway of the namespace has the same node id."""


class Fleet:
    """Before `join` and after `leave`, it leads nothing and knows no members.

    `state` says what this gateway may do (the table in `coordinator.fleet.leadership`); `role` says what this means
    for one partition.
    """

    def __init__(self, client: PulsarClient, admin: AdminClient, namespace: str, config: FleetSection) -> None:
        self._listeners: list[FleetListener] = []
        self._deletions = Deletions()
        self.node_id_in_use: asyncio.Future[NodeIdInUse] = asyncio.get_running_loop().create_future()
        """Completed when another live gateway has this gateway's node id."""
        self.cluster_id = ""
        """The same for all gateways; it never changes. Known after `join`."""
        self._stops = TopicStops()
        self._turns: TopicTurns | None = None
        self._client = client
        self._admin = admin
        self._namespace = namespace
        self._config = config
        self._membership: Membership | None = None
        self._log: FleetLog | None = None
        self._revision = -1
        self._behind = asyncio.Event()
        self._tasks = TaskGroup()
        self._evicted_s: dict[str, float] = {}
        """The time (monotonic) when this gateway learned of each eviction in the roster."""
        self._evicted_recently: tuple[str, ...] = ()
        self._eviction_check: EvictionCheck | None = None

    def subscribe(self, listener: FleetListener) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: FleetListener) -> None:
        self._listeners.remove(listener)

    def ask_about_eviction(self, peers: Peers) -> None:
        """While Pulsar does not answer, ask the other gateways whether they have evicted this one. Call before `join`.
        """
        self._eviction_check = EvictionCheck(peers)

    # Joining and leaving

    async def join(
        self,
        node_id: int | None,
        instance: str,
        addresses: Mapping[str, Address],
        forwarding: Address | None = None,
        rack: str | None = None,
        transaction_version: int = NO_TRANSACTIONS,
        clusters: tuple[str, ...] = (),
    ) -> None:
        """Become a member. Raises NodeIdInUse, PulsarError and TimeoutError."""
        topic = await prepare_fleet_topic(self._admin, self._namespace)
        self.cluster_id = await read_cluster_id(self._admin, topic)
        self._log = FleetLog(self._client, topic, self._read)
        snapshot = await self._log.open()
        started_ms = int(time.time() * 1000)
        identity = Identity(
            node_id, instance, dict(addresses), started_ms, rack, forwarding, transaction_version, clusters
        )
        times = self._config.times
        self._membership = Membership(identity, times, lambda: str(uuid.uuid4()), lease_now_ms(), snapshot)
        self._turns = TopicTurns(self._membership, self._log)
        await self._log.start()
        self._tasks.keep_running("fleet heartbeats", self._keep_ticking)
        self._tasks.keep_running("fleet hand-over", self._keep_releasing)
        self._tasks.keep_running("fleet eviction check", self._keep_checking)
        self._tasks.run_once("fleet log retention", limit_retention(self._admin, topic))
        while not self._membership.is_member:
            if self.node_id_in_use.done():
                raise self.node_id_in_use.result()
            await asyncio.sleep(JOIN_CHECK_S)
        log.info("joined the fleet", node_id=self.node_id, members=len(self.members), epoch=self.epoch)

    async def hand_over(self) -> None:
        """Hand over all partitions; return when the other gateways have taken them, or after `hand_over_ms`."""
        if self._membership is None or not self._membership.is_member:
            return
        self._membership.leave(lease_now_ms())
        self._tick()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.hand_over_ms / 1000):
                while not self._membership.handed_over:
                    await asyncio.sleep(JOIN_CHECK_S)

    async def leave(self) -> None:
        """Send a goodbye. This gateway must not lead any partition any more."""
        await self._tasks.close()
        if self._membership is not None and self._log is not None:
            if self._membership.is_member:
                self._log.send(self._membership.goodbye())
            await self._log.close()

    async def ask_to_stop(self, topic: str) -> None:
        """Return when no other member uses the topic any more, or does not answer for some seconds."""
        if self._membership is not None and self._log is not None and self._log.writable:
            others = self._incarnations() - {self.incarnation}
            await self._stops.ask(topic, self.incarnation, others, self._log.send)

    async def _stop_topic(self, asked: TopicStop) -> None:
        with contextlib.suppress(TimeoutError):  # then the other gateway does not wait any more
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(listener.stop_topic(asked.topic) for listener in self._listeners))
            if self._log is not None:
                self._log.send(TopicStopped(request_id=asked.request_id, incarnation=self.incarnation))

    def _incarnations(self) -> set[str]:
        """Of all members, also of those that are leaving."""
        states = () if self._membership is None else self._membership.roster.members.values()
        return {state.member.incarnation for state in states}

    @contextlib.asynccontextmanager
    async def topic_turn(self, topic: str) -> AsyncIterator[None]:
        """No other gateway of the fleet changes the topic meanwhile. Raises RequestTimeoutError."""
        async with contextlib.nullcontext() if self._turns is None else self._turns.turn(topic):
            yield

    def announce_deletion(self, topic: DeletedTopic) -> None:
        """Announce the deletion to all gateways, repeatedly until it is in the log."""
        self._deletions.add(topic)
        self._announce()

    def _announce(self) -> None:
        if self._membership is not None and self._log is not None and self._log.writable:
            self._deletions.send_due(self._membership.roster.snapshot, self._log.send)

    # Leadership

    @property
    def node_id(self) -> int:
        """-1 before `join`."""
        return -1 if self._membership is None else self._membership.member.node_id

    @property
    def incarnation(self) -> str:
        """Changes when this gateway is evicted. Empty before `join`."""
        return "" if self._membership is None else self._membership.member.incarnation

    @property
    def address(self) -> Address:
        """The address at which clients reach this gateway."""
        assert self._membership is not None
        return next(iter(self._membership.member.addresses.values()))

    @property
    def epoch(self) -> int:
        """Increases when leaders change, and never goes back: the leader epoch of every partition."""
        return 0 if self._membership is None else max(0, self._membership.roster.epoch)

    @property
    def transaction_version(self) -> int:
        """Kafka's `transaction.version` of the whole fleet; NO_TRANSACTIONS while a member serves none."""
        return NO_TRANSACTIONS if self._membership is None else self._membership.roster.transaction_version

    @property
    def members(self) -> list[Member]:
        """The members that may lead, by node id."""
        return [] if self._membership is None else self._membership.roster.eligible

    def leader(self, topic: str, partition: int) -> Member | None:
        """The member on which the partition is placed."""
        if self._membership is None:
            return None
        roster = self._membership.roster
        node_id = roster.leader(PartitionKey(topic, partition))
        return None if node_id is None else roster.members[node_id].member

    def key(self, topic: str, partition: int) -> PartitionKey:
        """The key by which the partition is placed."""
        return PartitionKey(topic, partition)

    def leads(self, topic: str, partition: int) -> bool:
        """Whether the `role` is not ELSEWHERE: this gateway serves plain Produce and Fetch for the partition."""
        return self._membership is not None and self._membership.is_placed_here((topic, partition))

    def role(self, topic: str, partition: int) -> PartitionRole:
        """The role of this gateway for the partition at this moment."""
        if self._membership is None:
            return PartitionRole.ELSEWHERE
        return self._membership.role(PartitionKey(topic, partition), lease_now_ms())

    def own_name(self) -> str:
        """The name of this gateway's producers."""
        return self.incarnation

    def evicted(self) -> tuple[str, ...]:
        """The names of producers that may still write although others lead. The same tuple until it changes."""
        return self._evicted_recently

    def _update_evicted(self) -> None:
        assert self._membership is not None
        now_s, known = time.monotonic(), self._membership.roster.evicted
        self._evicted_s = {each: self._evicted_s.get(each, now_s) for each in known}
        recently = tuple(each for each, evicted_s in self._evicted_s.items() if now_s - evicted_s < EVICTED_S)
        if recently != self._evicted_recently:
            self._evicted_recently = recently

    def is_member(self, member: Member) -> bool:
        """Whether the member is alive according to the log, and still the same process."""
        return self._membership is not None and self._membership.roster.has(member)

    # What this gateway may do

    @property
    def state(self) -> LeadershipState:
        """The state at this moment: the lease expires without an event."""
        if self._membership is None:
            return LeadershipState.OUTSIDE
        return self._membership.state(lease_now_ms(), self._silence)

    def _silence(self) -> Silence:
        duration_ms = 1000 * (asyncio.get_running_loop().time() - self._client.last_receipt_s)
        return Silence(duration_ms, self._may_be_evicted())

    def _may_be_evicted(self) -> bool:
        """As the other gateways say. If none answers, it depends on whether Pulsar itself closed the connection."""
        if self._eviction_check is not None and self._eviction_check.is_evicted is not None:
            return self._eviction_check.is_evicted
        return self._log is None or not self._log.is_lost_by_all

    def may_send_idempotent(self) -> bool:
        """Whether batches that this gateway accepted from idempotent producers may still be sent."""
        return self.state.permissions.excludes_others

    # The log

    def _read(self, position: LogPosition, message: Message) -> None:
        membership = self._membership
        assert membership is not None
        if isinstance(message, Deletion):
            self._read_deletion(membership, message)
        elif isinstance(message, TopicStop) and message.incarnation != self.incarnation:
            self._tasks.run_once("stop using a topic", self._stop_topic(message))
        elif isinstance(message, TopicStopped):
            self._stops.answered(message)
        epoch, turns = membership.roster.epoch, membership.roster.turns
        membership.read(position, message, lease_now_ms())
        if membership.roster.turns is not turns:
            self._turns_changed(turns, membership.roster.turns)
        if self._stops.is_waiting:
            self._stops.members_changed(self._incarnations())
        if membership.node_id_taken_by is not None and not self.node_id_in_use.done():
            self.node_id_in_use.set_result(_in_use(membership.node_id_taken_by))
        if membership.roster.epoch != epoch:
            self._log_change(membership)
        if membership.roster.revision != self._revision:
            self._revision = membership.roster.revision
            self._update_evicted()
            if self._turns is not None:
                self._turns.update()
            self._behind.set()
            for listener in self._listeners:
                listener.leaders_changed()

    def _read_deletion(self, membership: Membership, message: Deletion) -> None:
        topics = self._deletions.read(message)
        for listener in self._listeners:
            listener.topics_deleted(topics)
        for name in message.topics:
            membership.roster.forget_topic(name)

    def _turns_changed(self, before: Mapping[str, tuple[Turn, ...]], after: Mapping[str, tuple[Turn, ...]]) -> None:
        for topic, (first, *_) in before.items():
            if first not in after.get(topic, ()):
                for listener in self._listeners:
                    listener.topic_turn_ended(topic)
        if self._turns is not None:
            self._turns.update()

    def _log_change(self, membership: Membership) -> None:
        nodes = {member.node_id: _where(member) for member in self.members}
        log.info("fleet changed", epoch=membership.roster.epoch, nodes=nodes, member=membership.is_member)

    async def _keep_ticking(self) -> None:
        while True:
            if not self.may_send_idempotent():
                self._report_lease_lost()
            self._tick()
            self._announce()
            if self._turns is not None:
                self._turns.send_due()
            self._update_evicted()
            await asyncio.sleep(self._config.heartbeat_ms / 1000 / TICKS_A_HEARTBEAT)

    def _tick(self) -> None:
        if self._log is None or self._membership is None or not self._log.writable:
            return
        for message in self._membership.due(lease_now_ms()):
            if message.kind == "eviction":
                log.warning("a gateway is silent: it is presumed dead", node_id=message.node_id)
            self._log.send(message)

    async def _keep_checking(self) -> None:
        while self._eviction_check is not None and self._membership is not None:
            if self._membership.holds_lease(lease_now_ms()):
                self._eviction_check.reset()
            else:
                own = self._membership.member
                others = [member for member in self.members if member.incarnation != own.incarnation]
                await self._eviction_check.ask(own.node_id, others)
            await asyncio.sleep(self._config.heartbeat_ms / 1000)

    def _report_lease_lost(self) -> None:
        for listener in self._listeners:
            listener.lease_lost()

    async def _keep_releasing(self) -> None:
        while True:
            await self._behind.wait()
            self._behind.clear()
            assert self._membership is not None
            epoch = self._membership.roster.epoch
            try:
                async with asyncio.timeout(RELEASE_S):
                    await asyncio.gather(*(listener.release_partitions() for listener in self._listeners))
                    if self._turns is not None:
                        await self._turns.wait_until_logged()
            except TimeoutError:
                log.warning("partitions that moved were not released in time", epoch=epoch)
                self._report_lease_lost()
            except Exception:
                self._behind.set()  # the next run continues where this one failed
                raise
            self._membership.drained(epoch, lease_now_ms())
            self._tick()


def _in_use(holder: Member) -> NodeIdInUse:
    return NodeIdInUse(
        f"node id {holder.node_id} is in use by the gateway at {_where(holder)}; give each gateway of a namespace its"
        " own ([kafka] node_id), or none, and it takes one that is free"
    )


def _where(member: Member) -> str:
    return ", ".join(f"{address.host}:{address.port}" for address in member.addresses.values())
