"""What the coordinator waits for."""

from enum import Enum, auto
from typing import NamedTuple


class TimerKind(Enum):
    TIMEOUT = auto()
    """Of an open transaction."""
    MARKERS = auto()
    """Until some are tried again."""
    SLOW = auto()
    """Until it is looked for transactions whose markers take long."""
    EXPIRY = auto()
    """Until all transactional ids are looked at."""


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: str = ""
