"""The states of a classic group, and the allowed transitions."""

from enum import Enum


class ClassicGroupState(Enum):
    """Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"  # no members; may have offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # waiting for JoinGroup requests
    COMPLETING_REBALANCE = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # removed, or another coordinator has it; callbacks in flight may still refer to it


PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
