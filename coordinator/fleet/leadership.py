"""What a gateway may do as a leader: a table of its states, and its role for one partition.

The state follows from three things: who is a member, whether this gateway's lease holds, and for how long Pulsar has
acknowledged none of its writes. `Permissions` says what each column means.

| state | when | coordinates | excludes others | advertises itself | ready |
| --- | --- | --- | --- | --- | --- |
| OUTSIDE | nobody is a member | no | yes | yes | yes |
| LEADING | it is a member, and its lease holds | yes | yes | yes | yes |
| LAPSED | its lease ran out; nobody else is a member, as far as it has read | no | no | yes | yes |
| DOUBTFUL | it has no lease, and others are members | no | no | yes | yes |
| PRESUMED_DEAD | and nothing was acknowledged for `dead_after_ms` | no | no | no | yes |
| CUT_OFF | nor for `cut_off_ms`; another gateway is there to stay | no | no | no | no |
| ALL_CUT_OFF | as CUT_OFF, but so are the other gateways | no | no | yes | no |

While Pulsar is away from all gateways, they stay DOUBTFUL and advertise the leaders of the epoch: a client that hears
of two leaders in one epoch may stay with the wrong one for minutes (confluentinc/librdkafka#5593).

Plain Produce and Fetch need no state: a gateway serves what is placed on it, because two leaders neither lose nor
misnumber plain batches. A gateway that joins, leaves or was evicted has the state that its lease and the other members
give it; nothing is placed on it.
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

    @property
    def permissions(self) -> Permissions:
        return _PERMISSIONS[self]


class Permissions(NamedTuple):
    """The columns of the module's table."""

    coordinates: bool
    """It judges batches of idempotent producers, and coordinates groups, where its role is LEADING."""
    excludes_others: bool
    """No other gateway can lead by now what this one led: batches of idempotent producers that it took may be sent."""
    advertises_itself: bool
    """Metadata names it as the leader of what is placed on it; otherwise the gateways that take its place."""
    is_ready: bool
    """Load balancers send it clients."""


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
    """This gateway's part in one partition."""

    ELSEWHERE = "elsewhere"
    """Another gateway is to lead it, or nobody."""
    WITHOUT_LEASE = "without lease"
    """It is placed here, but the lease has run out: plain Produce and Fetch only."""
    TAKING_OVER = "taking over"
    """It is placed here, and the lease holds, but its leader before may not have released it yet."""
    LEADING = "leading"
    """This gateway leads it, and no other does."""


class Standing(NamedTuple):
    """One gateway among the members, at one moment."""

    is_member: bool
    holds_lease: bool
    others: int
    """Other members, those included that leave."""
    staying_others: int
    """Other members that may lead."""


class Silence(NamedTuple):
    """How long ago Pulsar last acknowledged a write of this gateway."""

    duration_ms: float
    """Infinite if it never did."""
    of_all: bool = False
    """Pulsar is known to be away from the other gateways, too."""


def leadership_state(standing: Standing, silence: Silence, times: FleetTimes) -> LeadershipState:
    """The row of the table."""
    if standing.holds_lease:
        return LeadershipState.LEADING
    if not standing.others:
        return LeadershipState.LAPSED if standing.is_member else LeadershipState.OUTSIDE
    if silence.duration_ms <= times.dead_after_ms:
        return LeadershipState.DOUBTFUL
    if silence.duration_ms <= times.cut_off_ms or not standing.staying_others:
        return LeadershipState.DOUBTFUL if silence.of_all else LeadershipState.PRESUMED_DEAD
    return LeadershipState.ALL_CUT_OFF if silence.of_all else LeadershipState.CUT_OFF
