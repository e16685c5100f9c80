"""The states of a consumer group."""

from enum import Enum


class ConsumerGroupState(Enum):
    """Values are the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target assignment is older than the group epoch
    RECONCILING = "Reconciling"  # members have not reached the target assignment yet
    STABLE = "Stable"
    DEAD = "Dead"
