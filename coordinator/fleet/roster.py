"""The members of the fleet, as of a place in its log: the same for all gateways that have read that far.

| entry | applies when | effect |
| --- | --- | --- |
| heartbeat, joining | its node id is free, or held by its own instance | becomes a member; the epoch rises |
| heartbeat | its sender is a member | is stored; the epoch rises when the member begins to leave |
| goodbye | its sender is a member | is no longer a member; the epoch rises |
| eviction | it names a member and the member's last heartbeat | is no longer a member; the epoch rises |
| turn | its sender is a member, and did not ask before | waits behind the turns of the same topic |
| end of a turn | always | the turn is over; so are those of a gateway that is no longer a member |

Other entries, such as deletions of topics, change nothing. Partitions move only when the epoch rises, so the epoch
serves as their leader epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from coordinator.fleet.messages import (
    NO_EPOCH,
    NO_TRANSACTIONS,
    Eviction,
    Goodbye,
    Heartbeat,
    LogPosition,
    Member,
    MemberState,
    Message,
    Snapshot,
    TopicTurn,
    TopicTurnEnd,
    Turn,
)
from coordinator.fleet.placement import PartitionKey, Placement

MAX_VIEWS = 64
"""Of recent views that some member may still act on. A member that is further behind may lead any partition."""
MAX_EVICTED = 16
"""Of evicted incarnations whose last writes may still be in flight."""


class _View(NamedTuple):
    epoch: int
    placement: Placement


class Roster:
    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.epoch = NO_EPOCH
        self.position: LogPosition | None = None
        self.revision = 0
        """Rises whenever `leader` or `may_lead` may return something else, or the clusters of members change."""
        self.members: dict[int, MemberState] = {}
        self.evicted: tuple[str, ...] = ()
        """Incarnations that left without a goodbye, oldest first."""
        self.turns: Mapping[str, tuple[Turn, ...]] = {}
        """Those that change a topic, or want to, by topic: the first one has its turn. Another object after each
        change."""
        if snapshot is not None:
            self.evicted = snapshot.evicted[-MAX_EVICTED:]
            self.epoch, self.position = snapshot.epoch, snapshot.position
            self.members = {state.member.node_id: state for state in snapshot.members}
            for turn in snapshot.turns:
                self._add_turn(turn)
        self._views = deque([self._view()], MAX_VIEWS)
        self.placement = self._views[-1].placement
        """Where each partition is placed now. Its leader leads when `may_lead` is true."""
        self._forget_drained_views()

    def snapshot(self) -> Snapshot:
        members = tuple(self.members.values())
        turns = tuple(turn for of_topic in self.turns.values() for turn in of_topic)
        return Snapshot(epoch=self.epoch, position=self.position, members=members, evicted=self.evicted, turns=turns)

    def has(self, member: Member) -> bool:
        """The member is in the fleet, in this incarnation."""
        return self._is_member(member.node_id, member.incarnation)

    @property
    def eligible(self) -> list[Member]:
        """The members that may lead, by node id: all that are not leaving, or all if every member is leaving."""
        states = [self.members[node_id] for node_id in sorted(self.members)]
        staying = [state.member for state in states if not state.leaving]
        return staying or [state.member for state in states]

    @property
    def transaction_version(self) -> int:
        """What every member serves. A cluster that one member does not serve has no leaders."""
        versions = (state.member.transaction_version for state in self.members.values())
        return min(versions, default=NO_TRANSACTIONS)

    # The log

    def apply(self, position: LogPosition, message: Message) -> None:
        """The next entry of the log."""
        before, revision = self.epoch, self.revision
        match message:
            case Heartbeat():
                self._heartbeat(message)
            case Goodbye():
                if self._is_member(message.node_id, message.incarnation):
                    self._remove(message.node_id)
            case Eviction():
                is_member = self._is_member(message.node_id, message.incarnation)
                if is_member and self.members[message.node_id].sequence == message.sequence:
                    self._note_evicted(message.incarnation)
                    self._remove(message.node_id)
            case TopicTurn():
                turn = Turn(topic=message.topic, request_id=message.request_id, incarnation=message.incarnation)
                self._add_turn(turn)
            case TopicTurnEnd():
                self._keep_turns(lambda turn: turn.request_id != message.request_id)
        self.position = position
        if self.epoch != before:
            self.revision += 1
            self._views.append(self._view())
            self.placement = self._views[-1].placement
        if self.revision != revision:
            self._forget_drained_views()

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        state = heartbeat.state
        node_id = state.member.node_id
        known = self.members.get(node_id)
        if known is not None and self.has(state.member):
            if state.sequence > known.sequence:
                self.epoch += known.leaving != state.leaving
                self.revision += state.drained_epoch > known.drained_epoch
                self.revision += state.member.clusters != known.member.clusters  # Older gateways do not write these.
                self.members[node_id] = _drained(state, max(state.drained_epoch, known.drained_epoch))
        elif heartbeat.joining and (known is None or known.member.instance == state.member.instance):
            if known is not None:
                self._note_evicted(known.member.incarnation)
                self._end_turns_of(known.member)
            self.epoch += 1
            # It leads nothing yet, and will act on this epoch or a later one.
            self.members[node_id] = _drained(state, self.epoch)

    def _note_evicted(self, incarnation: str) -> None:
        self.evicted = (*self.evicted, incarnation)[-MAX_EVICTED:]

    def _remove(self, node_id: int) -> None:
        self._end_turns_of(self.members.pop(node_id).member)
        self.epoch += 1

    def _is_member(self, node_id: int, incarnation: str) -> bool:
        known = self.members.get(node_id)
        return known is not None and known.member.incarnation == incarnation

    # Turns

    def _add_turn(self, turn: Turn) -> None:
        """A request that is sent again has its turn already."""
        before = self.turns.get(turn.topic, ())
        is_of_member = any(state.member.incarnation == turn.incarnation for state in self.members.values())
        is_known = any(each.request_id == turn.request_id for of_topic in self.turns.values() for each in of_topic)
        if is_of_member and not is_known:
            self.turns = {**self.turns, turn.topic: (*before, turn)}

    def _end_turns_of(self, member: Member) -> None:
        self._keep_turns(lambda turn: turn.incarnation != member.incarnation)

    def _keep_turns(self, is_kept: Callable[[Turn], bool]) -> None:
        kept = {topic: tuple(filter(is_kept, turns)) for topic, turns in self.turns.items()}
        self.turns = {topic: turns for topic, turns in kept.items() if turns}

    # Leaders

    def leader(self, key: tuple[str, int]) -> int | None:
        """The node on which the partition is placed; it leads when `may_lead` is true. None without members."""
        return self.placement.leader(key)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        for view in self._views:
            view.placement.forget(topic)

    def may_lead(self, node_id: int, key: PartitionKey) -> bool:
        """The partition is placed on the node, and no previous leader can still think that it leads."""
        if self.leader(key) != node_id:
            return False
        if self._all_drained:
            return True
        return not any(self._may_still_lead(state, key) for other, state in self.members.items() if other != node_id)

    def _may_still_lead(self, state: MemberState, key: PartitionKey) -> bool:
        """By some view that the member may still act on: the one that it has drained for, or a later one."""
        if state.drained_epoch < self._views[0].epoch:
            return True
        node_id = state.member.node_id
        return any(
            view.placement.leader(key) == node_id for view in self._views if view.epoch >= state.drained_epoch
        )

    def drained(self, epoch: int, *, besides: int) -> bool:
        """Every other member has released what it lost up to this epoch."""
        return all(state.drained_epoch >= epoch for node, state in self.members.items() if node != besides)

    def _view(self) -> _View:
        return _View(self.epoch, Placement([member.node_id for member in self.eligible]))

    def _forget_drained_views(self) -> None:
        behind = min((state.drained_epoch for state in self.members.values()), default=self.epoch)
        while len(self._views) > 1 and self._views[1].epoch <= behind:
            self._views.popleft()
        self._all_drained = behind >= self.epoch


def _drained(state: MemberState, epoch: int) -> MemberState:
    return state if state.drained_epoch == epoch else state.model_copy(update={"drained_epoch": epoch})
