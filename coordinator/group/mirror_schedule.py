"""Which committed offsets wait to be mirrored, and when each one's turn is.

Only names are kept, not offsets: whoever takes a key looks up what is committed then, so the latest offset wins and a
thousand commits of a moment are one update. Keys of one partition take turns, so that a partition that does not answer
holds one place of `max_running`.

| state of a key | event       | next                                                            |
|----------------|-------------|-----------------------------------------------------------------|
| unknown        | changed     | waiting, due after `COALESCE_MS`                                |
| waiting        | changed     | waiting, due as before                                          |
| waiting        | take        | running; if its partition has a running one: parked             |
| running        | changed     | running, changed again                                          |
| running        | succeeded   | unknown; if changed again: waiting, due after `COALESCE_MS`     |
| running        | failed      | waiting, due after a pause that doubles, from 1 s to 60 s       |
| parked         | (the other) | waiting, due at once, or in 1 s if the running one failed       |
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.group.ports import TopicPartition
from coordinator.group.timers import Timers

COALESCE_MS = 500
PAUSE_FIRST_MS = 1_000
PAUSE_LONGEST_MS = 60_000
MAX_DOUBLINGS = 6
START_EVERY_MS = 20
"""An update costs a gateway a millisecond of CPU and Pulsar more (measured), which commits must not feel."""
MAX_RUNNING = 4
"""Few: where Pulsar is busy, updates take longer, and fewer are made."""
MAX_KEYS = 100_000


class MirrorKey(NamedTuple):
    group_id: str
    partition: TopicPartition


@dataclass
class _Pending:
    """`since_ms` is when the oldest change came that is not mirrored yet."""

    since_ms: int
    failures: int = 0
    changed_again_ms: int | None = None


@dataclass
class _Turn:
    """The key of a partition that runs, and those that wait for it to end."""

    running: MirrorKey
    parked: list[MirrorKey] = field(default_factory=list)


class MirrorSchedule:
    def __init__(self, max_running: int = MAX_RUNNING, max_keys: int = MAX_KEYS) -> None:
        self._max_running = max_running
        self._max_keys = max_keys
        self._pending: dict[MirrorKey, _Pending] = {}
        self._due: Timers[MirrorKey] = Timers()
        self._turns: dict[TopicPartition, _Turn] = {}
        self._next_start_ms = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: MirrorKey) -> bool:
        """Whether the mirror may be behind what is committed."""
        return key in self._pending

    def changed(self, key: MirrorKey, now_ms: int) -> bool:
        """False if there is no room: the change is not mirrored, unless a later one of its key is."""
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= self._max_keys:
                return False
            self._pending[key] = _Pending(now_ms)
            self._due.set(key, now_ms + COALESCE_MS)
        elif self._is_running(key) and pending.changed_again_ms is None:
            pending.changed_again_ms = now_ms
        return True

    def take(self, now_ms: int) -> MirrorKey | None:
        """The key whose turn it is; the caller ends it with `succeeded` or `failed`."""
        if len(self._turns) >= self._max_running or now_ms < self._next_start_ms:
            return None
        while (key := self._due.pop_due(now_ms)) is not None:
            turn = self._turns.get(key.partition)
            if turn is None:
                self._turns[key.partition] = _Turn(key)
                self._next_start_ms = now_ms + START_EVERY_MS
                return key
            turn.parked.append(key)
        return None

    def next_ms(self) -> int | None:
        """When `take` may find a key; None if not before another one ends or changes."""
        deadline_ms = self._due.next_deadline_ms()
        if deadline_ms is None or len(self._turns) >= self._max_running:
            return None
        return max(deadline_ms, self._next_start_ms)

    def succeeded(self, key: MirrorKey, now_ms: int) -> None:
        pending = self._pending[key]
        self._end_turn(key, now_ms)
        if pending.changed_again_ms is None:
            del self._pending[key]
        else:
            self._pending[key] = _Pending(pending.changed_again_ms)
            self._due.set(key, now_ms + COALESCE_MS)

    def failed(self, key: MirrorKey, now_ms: int) -> None:
        pending = self._pending[key]
        pending.failures += 1
        pending.changed_again_ms = None
        pause_ms = PAUSE_FIRST_MS << min(pending.failures - 1, MAX_DOUBLINGS)
        self._end_turn(key, now_ms + PAUSE_FIRST_MS)
        self._due.set(key, now_ms + min(pause_ms, PAUSE_LONGEST_MS))

    def oldest_ms(self) -> int | None:
        """When the oldest change came that is not mirrored yet."""
        return min((pending.since_ms for pending in self._pending.values()), default=None)

    def _is_running(self, key: MirrorKey) -> bool:
        turn = self._turns.get(key.partition)
        return turn is not None and turn.running == key

    def _end_turn(self, key: MirrorKey, others_due_ms: int) -> None:
        for parked in self._turns.pop(key.partition).parked:
            self._due.set(parked, others_due_ms)
