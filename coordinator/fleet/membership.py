"""One gateway's part in the fleet: its heartbeats, its lease, and its view of the other members.

A pure state machine. Its inputs are the entries of the log, in order, and the time of a monotonic clock; its outputs
are the entries to append. Times are in milliseconds.

Leadership is safe for these reasons. A heartbeat extends its sender's lease only when the sender has read it back and
was still a member at that place of the log; the lease counts from the time when the heartbeat was sent. A partition of
a silent member gets another leader only after an eviction. An eviction is appended when no heartbeat of the member was
read for longer than a lease lasts; it is void if a later heartbeat precedes it in the log. And a member takes over a
partition from a living member only when that member has announced, in its own heartbeat, that it has released the
partition (`Roster.may_lead`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.fleet.leadership import LeadershipState, PartitionRole, Silence, Standing, leadership_state
from coordinator.fleet.messages import (
    NO_EPOCH,
    NO_TRANSACTIONS,
    Address,
    Eviction,
    Goodbye,
    Heartbeat,
    LogPosition,
    Member,
    MemberState,
    Message,
    Snapshot,
)
from coordinator.fleet.placement import PartitionKey
from coordinator.fleet.roster import Roster
from coordinator.fleet.times import FleetTimes, silence_ms


@dataclass(frozen=True)
class Identity:
    """The identity of a gateway, independent of its node id."""

    node_id: int | None
    """None: the lowest free one."""
    instance: str
    addresses: dict[str, Address]
    started_ms: int
    rack: str | None = None
    forwarding: Address | None = None
    transaction_version: int = NO_TRANSACTIONS
    clusters: tuple[str, ...] = ()


class Membership:
    def __init__(
        self,
        identity: Identity,
        times: FleetTimes,
        new_incarnation: Callable[[], str],
        now_ms: int,
        snapshot: Snapshot | None = None,
    ) -> None:
        """`snapshot` is the log's last one; the entries since its position must be read next."""
        self.roster = Roster(snapshot)
        self.node_id_taken_by: Member | None = None
        """Another living gateway has this node id, so this gateway cannot be a member."""
        self._identity = identity
        self._times = times
        self._new_incarnation = new_incarnation
        self._sequence = 0
        self._sent_ms: dict[int, int] = {}
        self._lease_end_ms = now_ms
        self._heartbeat_ms = dict.fromkeys((state.member.incarnation for state in self.roster.members.values()), now_ms)
        self._eviction_sent_ms: dict[str, int] = {}
        self._next_heartbeat_ms = now_ms
        self._drained_epoch = self._joined_epoch = NO_EPOCH
        self._joining = True
        self._leaving = False
        self._left = False
        self._conflict: MemberState | None = None
        self.member = self._new_member()

    # State

    @property
    def is_member(self) -> bool:
        known = self.roster.members.get(self.member.node_id)
        return known is not None and known.member.incarnation == self.member.incarnation and not self._left

    @property
    def is_known_to_all(self) -> bool:
        """Every other member has announced that it has acted on this gateway's joining."""
        return self.is_member and self.roster.drained(self._joined_epoch, besides=self.member.node_id)

    def state(self, now_ms: int, silence: Callable[[], Silence]) -> LeadershipState:
        """What this gateway may do. Called for each entry that is sent, so the silence is computed only without a
        lease."""
        if self.holds_lease(now_ms):
            return LeadershipState.LEADING
        return leadership_state(self._standing(now_ms), silence(), self._times)

    def role(self, key: PartitionKey, now_ms: int) -> PartitionRole:
        if not self.is_placed_here(key):
            return PartitionRole.ELSEWHERE
        if now_ms >= self._lease_end_ms:  # not `holds_lease`, in place: this gateway is a member
            return PartitionRole.WITHOUT_LEASE
        alone = self.roster.may_lead(self.member.node_id, key)
        return PartitionRole.LEADING if alone else PartitionRole.TAKING_OVER

    def is_placed_here(self, key: tuple[str, int]) -> bool:
        """The partition is placed here; the previous leader may not have released it yet. Called for each batch."""
        member = self.member
        known = self.roster.members.get(member.node_id)
        if known is None or known.member.incarnation != member.incarnation or self._left:  # `is_member`, in place
            return False
        return self.roster.placement.leader(key) == member.node_id

    def _standing(self, now_ms: int) -> Standing:
        own = self.member.incarnation
        return Standing(
            self.is_member,
            self.holds_lease(now_ms),
            others=sum(state.member.incarnation != own for state in self.roster.members.values()),
            staying_others=sum(member.incarnation != own for member in self.roster.eligible),
        )

    def holds_lease(self, now_ms: int) -> bool:
        """No other gateway can have taken over its partitions yet."""
        return self.is_member and self._is_current(now_ms)

    def _is_current(self, now_ms: int) -> bool:
        """It has read a recent heartbeat of its own, and so every entry that was in the log when it sent that one."""
        return now_ms < self._lease_end_ms

    def _new_member(self) -> Member:
        return Member(
            node_id=self._choose_node_id(),
            incarnation=self._new_incarnation(),
            instance=self._identity.instance,
            addresses=self._identity.addresses,
            forwarding=self._identity.forwarding,
            rack=self._identity.rack,
            transaction_version=self._identity.transaction_version,
            clusters=self._identity.clusters,
            lease_ms=self._times.lease_ms,
            started_ms=self._identity.started_ms,
        )

    def _choose_node_id(self) -> int:
        """A restarted process that listens on the same addresses gets the node id of the dead one."""
        if self._identity.node_id is not None:
            return self._identity.node_id
        taken = {state.member.node_id: state.member.instance for state in self.roster.members.values()}
        own = (node_id for node_id, instance in taken.items() if instance == self._identity.instance)
        free = (node_id for node_id in range(len(taken) + 1) if node_id not in taken)
        return min(own, default=next(free))

    # The log

    def read(self, position: LogPosition, message: Message, now_ms: int) -> None:
        """The next entry of the log, including entries of this gateway."""
        was_member = self.is_member
        self.roster.apply(position, message)
        if isinstance(message, Heartbeat):
            self._apply_heartbeat(message, now_ms)
        if was_member and not self.is_member:
            self._removed(now_ms)

    def _apply_heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> None:
        incarnation, sequence = heartbeat.state.member.incarnation, heartbeat.state.sequence
        self._heartbeat_ms[incarnation] = now_ms
        if incarnation != self.member.incarnation or sequence not in self._sent_ms:
            return
        if not self._is_current(now_ms):
            # Other members may have sent heartbeats meanwhile: their silence counts from now.
            self._heartbeat_ms = dict.fromkeys(self._heartbeat_ms, now_ms)
        self._lease_end_ms = max(self._lease_end_ms, self._sent_ms[sequence] + self._times.lease_ms)
        self._sent_ms = {later: sent for later, sent in self._sent_ms.items() if later > sequence}
        if self._joining:
            self._join_answered(now_ms)

    def _join_answered(self, now_ms: int) -> None:
        if self.is_member:
            self._joining = False
            self._drained_epoch = self._joined_epoch = self.roster.epoch
            return
        holder = self.roster.members[self.member.node_id]
        if self._identity.node_id is None:
            self._join_again(now_ms)
        elif self._conflict is None or self._conflict.member.incarnation != holder.member.incarnation:
            self._conflict = holder  # The member may be dead, and about to be evicted.
        elif holder.sequence > self._conflict.sequence:
            self.node_id_taken_by = holder.member

    def _removed(self, now_ms: int) -> None:
        holder = self.roster.members.get(self.member.node_id)
        if holder is not None:
            self.node_id_taken_by = holder.member
        elif not self._left:
            self._join_again(now_ms)

    def _join_again(self, now_ms: int) -> None:
        self.member = self._new_member()
        self._sent_ms.clear()
        self._drained_epoch = NO_EPOCH
        self._joining = True
        self._next_heartbeat_ms = now_ms

    # Entries to append

    def due(self, now_ms: int) -> list[Message]:
        """The entries to append now, in order."""
        if self._left or self.node_id_taken_by is not None:
            return []
        messages: list[Message] = []
        if now_ms >= self._next_heartbeat_ms:
            self._next_heartbeat_ms = now_ms + self._times.heartbeat_ms
            messages.append(self._heartbeat(now_ms))
        if self._is_current(now_ms):
            messages += self._evictions(now_ms)
        return messages

    def _heartbeat(self, now_ms: int) -> Heartbeat:
        if self._joining and not self._sent_ms:
            self.member = self._new_member()  # With the entries that were read since the previous one was made.
        self._sequence += 1
        self._sent_ms[self._sequence] = now_ms
        state = MemberState(
            member=self.member, sequence=self._sequence, drained_epoch=self._drained_epoch, leaving=self._leaving
        )
        return Heartbeat(state=state, joining=self._joining, snapshot=self.roster.snapshot())

    def _evictions(self, now_ms: int) -> list[Message]:
        members = {state.member.incarnation: state for state in self.roster.members.values()}
        self._heartbeat_ms = {each: heard for each, heard in self._heartbeat_ms.items() if each in members}
        self._eviction_sent_ms = {each: sent for each, sent in self._eviction_sent_ms.items() if each in members}
        silent = [members[each] for each in self._heartbeat_ms if self._is_dead(members[each], now_ms)]
        for state in silent:
            self._eviction_sent_ms[state.member.incarnation] = now_ms
        return [
            Eviction(
                node_id=state.member.node_id, incarnation=state.member.incarnation, sequence=state.sequence,
                snapshot=self.roster.snapshot(),
            )
            for state in silent
        ]  # fmt: skip

    def _is_dead(self, state: MemberState, now_ms: int) -> bool:
        """The member has been silent for too long, and no eviction of it was sent a moment ago."""
        incarnation = state.member.incarnation
        if incarnation == self.member.incarnation:
            return False
        sent_ms = self._eviction_sent_ms.get(incarnation)
        if sent_ms is not None and now_ms - sent_ms < self._times.heartbeat_ms:
            return False
        limit_ms = max(self._times.dead_after_ms, silence_ms(state.member.lease_ms))
        return now_ms - self._heartbeat_ms[incarnation] >= limit_ms

    # Handing over

    def drained(self, epoch: int, now_ms: int) -> None:
        """This gateway has released everything that it lost up to this epoch. The others learn it at once."""
        if self.is_member and epoch > self._drained_epoch:
            self._drained_epoch = epoch
            self._next_heartbeat_ms = now_ms

    def leave(self, now_ms: int) -> None:
        """Give up leadership of everything, if other members can take it."""
        self._leaving = True
        self._next_heartbeat_ms = now_ms

    @property
    def handed_over(self) -> bool:
        """The log says that this gateway is leaving, and every other member has acted on that."""
        state = self.roster.members.get(self.member.node_id)
        known = state is not None and self.is_member and state.leaving
        return not self.is_member or (known and self.roster.drained(self.roster.epoch, besides=self.member.node_id))

    def goodbye(self) -> Goodbye:
        """The last entry of this gateway; it leads nothing when this is appended."""
        self._left = True
        return Goodbye(
            node_id=self.member.node_id, incarnation=self.member.incarnation, snapshot=self.roster.snapshot()
        )
