"""The log of a coordinator: its partition of an internal topic, as far as it appends to it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from protocol.kafka.errors import ErrorCode

OnAppended = Callable[[ErrorCode, int], None]
"""(error, now_ms): NONE when the records are durable, else why they are not known to be."""


class Record(NamedTuple):
    """One record to append; `value` None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + (0 if self.value is None else len(self.value))


class Log(Protocol):
    """Only this coordinator appends to it: after another gateway has taken over the partition, its appends fail."""

    @property
    def max_record_bytes(self) -> int:
        """What a key and its value may have together. An append with a larger record is refused as a whole."""

    def append(self, records: Sequence[Record], on_done: OnAppended, *, irrevocable: bool = False) -> None:
        """Append in order. Call `on_done` exactly once, later (never inside this call) and in the order of appends.

        Calls made in one moment may share one entry of the log, and a large call may need several. If too much waits,
        an append is refused (NOT_ENOUGH_REPLICAS), unless it is `irrevocable`: the coordinator's state has changed
        already, so the log would differ from it until the next coordinator reads the log.
        """
