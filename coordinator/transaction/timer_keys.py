"""The timers of the coordinator."""

from enum import Enum, auto
from typing import NamedTuple


class TimerKind(Enum):
    TIMEOUT = auto()
    """An open transaction times out."""
    MARKERS = auto()
    """Failed markers are sent again."""
    SLOW = auto()
    """The next search for transactions whose markers take long."""
    EXPIRY = auto()
    """The next search for expired transactional ids."""


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: str = ""
