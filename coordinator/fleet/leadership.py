"""What a gateway may do as a leader: a table of its states, and its role for one partition.

The state depends on three things: who is a member, whether this gateway's lease is valid, and for how long Pulsar has
acknowledged none of its writes. `Permissions` explains the columns.

| state | when | coordinates | excludes others | advertises itself | ready |
| --- | --- | --- | --- | --- | --- |
| OUTSIDE | there are no members | no | yes | yes | yes |
| LEADING | it is a member, and its lease is valid | yes | yes | yes | yes |
| LAPSED | its lease has expired; it has read of no other member | no | no | yes | yes |
| DOUBTFUL | it has no lease, and there are other members | no | no | yes | yes |
| PRESUMED_DEAD | as DOUBTFUL, and no write was acknowledged for `dead_after_ms` | no | no | no | yes |
| CUT_OFF | as DOUBTFUL, and none for `cut_off_ms`; another gateway is not leaving | no | no | no | no |
| ALL_CUT_OFF | as CUT_OFF, but the other gateways have not evicted it | no | no | yes | no |

As long as the other gateways have not evicted it, a gateway stays DOUBTFUL and advertises the leaders of the epoch, as
they do: Pulsar may be away from all of them. A client that gets two leaders in short succession may stay with the wrong
one for minutes (confluentinc/librdkafka#5593).

Plain Produce and Fetch need no state: a gateway serves the partitions that are placed on it, because two leaders
neither lose nor misnumber plain batches. A gateway that joins, leaves or was evicted gets its state from its lease and
the other members like any other gateway, but no partition is placed on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from coordinator.fleet.times import FleetTimes


class LeadershipState(Enum):
    """See the module's table. Metrics and logs show the values."""

    OUTSIDE = "outside"
    LEADING = "leading"
    LAPSED = "lapsed"
    DOUBTFUL = "doubtful"
    PRESUMED_DEAD = "presumed dead"
    CUT_OFF = "cut off"
    ALL_CUT_OFF = "all cut off"

    __hash__ = object.__hash__  # that of Enum is not written in C, and these are looked up for each batch

    @property
    def permissions(self) -> Permissions:
        return _PERMISSIONS[self]


class Permissions(NamedTuple):
    """The columns of the module's table."""

    coordinates: bool
    """It accepts batches of idempotent producers, and coordinates groups, for partitions where its role is LEADING."""
    excludes_others: bool
    """No other gateway can lead its partitions yet, so accepted batches of idempotent producers may be sent."""
    advertises_itself: bool
    """Metadata names it as the leader of the partitions placed on it; otherwise Metadata names its successors."""
    is_ready: bool
    """Load balancers send clients to it."""


_PERMISSIONS: Mapping[LeadershipState, Permissions] = {
    LeadershipState.OUTSIDE: Permissions(False, True, True, True),
    LeadershipState.LEADING: Permissions(True, True, True, True),
    LeadershipState.LAPSED: Permissions(False, False, True, True),
    LeadershipState.DOUBTFUL: Permissions(False, False, True, True),
    LeadershipState.PRESUMED_DEAD: Permissions(False, False, False, True),
    LeadershipState.CUT_OFF: Permissions(False, False, False, False),
    LeadershipState.ALL_CUT_OFF: Permissions(False, False, True, False),
}


class PartitionRole(Enum):
    """The role of this gateway for one partition."""

    __hash__ = object.__hash__

    ELSEWHERE = "elsewhere"
    """The partition is placed on another gateway, or on none."""
    WITHOUT_LEASE = "without lease"
    """The partition is placed here, but the lease has expired: plain Produce and Fetch only."""
    TAKING_OVER = "taking over"
    """The partition is placed here, and the lease is valid, but the previous leader may not have released it yet."""
    LEADING = "leading"
    """This gateway leads the partition, and no other does."""


class Standing(NamedTuple):
    """The position of one gateway among the members, at one moment."""

    is_member: bool
    holds_lease: bool
    others: int
    """The number of other members, including members that are leaving."""
    staying_others: int
    """The number of other members that may lead."""


class Silence(NamedTuple):
    """The time since Pulsar last acknowledged a write of this gateway."""

    duration_ms: float
    """Infinite if Pulsar never acknowledged one."""
    may_be_evicted: bool = True
    """If not, the other gateways still advertise this one."""


def leadership_state(standing: Standing, silence: Silence, times: FleetTimes) -> LeadershipState:
    """The row of the module's table."""
    if standing.holds_lease:
        return LeadershipState.LEADING
    if not standing.others:
        return LeadershipState.LAPSED if standing.is_member else LeadershipState.OUTSIDE
    if silence.duration_ms <= times.dead_after_ms:
        return LeadershipState.DOUBTFUL
    if silence.duration_ms <= times.cut_off_ms or not standing.staying_others:
        return LeadershipState.PRESUMED_DEAD if silence.may_be_evicted else LeadershipState.DOUBTFUL
    return LeadershipState.CUT_OFF if silence.may_be_evicted else LeadershipState.ALL_CUT_OFF
