"""States of a classic group, and which may follow which."""

from enum import Enum


class GroupState(Enum):
    """Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"  # no members; perhaps offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # gathering JoinGroup requests
    COMPLETING_REBALANCE = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # removed, or handed to another coordinator; callbacks under way may still meet it


PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
