"""The keys of the timers of groups."""

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    JOIN = "gathering members"
    SYNC = "waiting for SyncGroup of every member"
    SESSION = "silence of a classic member"
    PENDING_MEMBER = "an id was given, no JoinGroup came with it"
    CONSUMER_SESSION = "silence of a consumer member"
    CONSUMER_REBALANCE = "a consumer member owes partitions"
    CONSUMER_JOIN = "a classic member of a consumer group is to join again"
    CONSUMER_SYNC = "a classic member of a consumer group has joined, and is to ask for its assignment"
    OFFSET_EXPIRY = "the next look for expired offsets"


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
