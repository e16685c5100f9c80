"""The committed offsets that wait to be mirrored, and the time of each one's turn.

Only keys are kept, not offsets: an update reads the committed offset when it runs. So the latest offset wins, and a
thousand commits at the same time cause one update. Keys of one partition run one after the other. A partition that
does not answer releases its place of `max_running` after SLOW_MS. A partition that has timed out pauses as a whole,
and few such partitions are tried at the same time.

| state of a key | event     | next                                                            |
|----------------|-----------|-----------------------------------------------------------------|
| unknown        | changed   | waiting, due after `COALESCE_MS`                                |
| waiting        | changed   | waiting, due as before                                          |
| waiting        | due       | queued, as the last one of its partition                        |
| queued         | take      | running, if it is the first one and no other of them is running |
| running        | changed   | running, changed again                                          |
| running        | succeeded | unknown; if changed again: waiting, due after `COALESCE_MS`     |
| running        | failed    | waiting, due after a pause that doubles, from 1 s to 60 s       |

After a failure, the queued keys of the partition pause, too. Thousands of groups may read the same partition, so an
update changes nothing about the partition's other keys.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.timers import Timers
from coordinator.topics import TopicPartition

COALESCE_MS = 500
PAUSE_FIRST_MS = 1_000
PAUSE_LONGEST_MS = 60_000
MAX_DOUBLINGS = 6
START_EVERY_MS = 20
"""An update costs a gateway a millisecond of CPU, and Pulsar more (measured). It must not slow down commits."""
MAX_RUNNING = 4
"""The limit is low on purpose: if Pulsar is busy, updates take longer, and fewer are started."""
SLOW_MS = 1_000
"""Updates that take longer no longer count as running: their partitions may never answer."""
MAX_SLOW = 64
MAX_STUCK_RUNNING = 2
"""The limit of running updates of partitions that timed out the last time."""
MAX_KEYS = 100_000


class MirrorKey(NamedTuple):
    group_id: str
    partition: TopicPartition


@dataclass
class _Pending:
    """`since_ms` is the time of the oldest change that is not mirrored yet."""

    since_ms: int
    failures: int = 0
    changed_again_ms: int | None = None


@dataclass
class _Turn:
    """The running key of a partition."""

    running: MirrorKey
    started_ms: int


@dataclass
class _Stuck:
    """A partition that timed out `failures` times in a row."""

    failures: int
    until_ms: int


class MirrorSchedule:
    def __init__(self, max_running: int = MAX_RUNNING, max_keys: int = MAX_KEYS) -> None:
        self._max_running = max_running
        self._max_keys = max_keys
        self._pending: dict[MirrorKey, _Pending] = {}
        self._due: Timers[MirrorKey] = Timers()
        self._queues: dict[TopicPartition, deque[MirrorKey]] = {}
        self._queues_due: Timers[TopicPartition] = Timers()
        """When the first key of a queue may run. Partitions with a running key are not included."""
        self._turns: dict[TopicPartition, _Turn] = {}
        self._next_start_ms = 0
        self._stuck: dict[TopicPartition, _Stuck] = {}
        self._waiting: dict[MirrorKey, None] = {}
        """Removed offsets for which there is no room yet. They use less memory than the offsets themselves did."""

    def __len__(self) -> int:
        return len(self._pending) + len(self._waiting)

    def __contains__(self, key: MirrorKey) -> bool:
        """Whether the subscription may differ from the committed offset."""
        return key in self._pending or key in self._waiting

    def changed(self, key: MirrorKey, now_ms: int, *, removed: bool = False) -> bool:
        """False if there is no room: the change is not mirrored, unless a later change of its key is.

        A removed offset waits for room: otherwise its subscription would restore it.
        """
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= self._max_keys:
                if removed:
                    self._waiting[key] = None
                return key in self._waiting
            self._waiting.pop(key, None)
            self._pending[key] = _Pending(now_ms)
            self._due.set(key, now_ms + COALESCE_MS)
        elif self._is_running(key) and pending.changed_again_ms is None:
            pending.changed_again_ms = now_ms
        return True

    def take(self, now_ms: int) -> MirrorKey | None:
        """The key whose turn it is; the caller ends it with `succeeded` or `failed`."""
        if now_ms < max(self._next_start_ms, self._free_ms(now_ms)):
            return None
        for key in self._due.due(now_ms):
            self._enqueue(key, now_ms)
        while (partition := self._queues_due.pop_due(now_ms)) is not None:
            if (pause_end_ms := self._pause_end_ms(partition, now_ms)) > now_ms:
                self._queues_due.set(partition, pause_end_ms)
            else:
                key = self._dequeue(partition)
                self._turns[partition] = _Turn(key, now_ms)
                self._next_start_ms = now_ms + START_EVERY_MS
                return key
        return None

    def _enqueue(self, key: MirrorKey, now_ms: int) -> None:
        queue = self._queues.get(key.partition)
        if queue is None:
            queue = self._queues[key.partition] = deque()
            if key.partition not in self._turns:
                self._queues_due.set(key.partition, now_ms)
        queue.append(key)

    def _dequeue(self, partition: TopicPartition) -> MirrorKey:
        queue = self._queues[partition]
        key = queue.popleft()
        if not queue:
            del self._queues[partition]
        return key

    def _free_ms(self, now_ms: int) -> int:
        """When a place becomes free, if no running update ends before."""
        if len(self._turns) >= self._max_running + MAX_SLOW:
            return now_ms + SLOW_MS
        counted = sorted(end_ms for turn in self._turns.values() if (end_ms := turn.started_ms + SLOW_MS) > now_ms)
        return now_ms if len(counted) < self._max_running else counted[-self._max_running]

    def _pause_end_ms(self, partition: TopicPartition, now_ms: int) -> int:
        stuck = self._stuck.get(partition)
        if stuck is None:
            return now_ms
        running = sum(each in self._stuck for each in self._turns)
        return max(stuck.until_ms, now_ms + PAUSE_FIRST_MS if running >= MAX_STUCK_RUNNING else now_ms)

    def next_ms(self, now_ms: int) -> int | None:
        """When `take` may find a key; None if not before another key ends or changes."""
        deadlines_ms = [self._due.next_deadline_ms(), self._queues_due.next_deadline_ms()]
        deadline_ms = min((each for each in deadlines_ms if each is not None), default=None)
        if deadline_ms is None:
            return None
        return max(deadline_ms, self._next_start_ms, self._free_ms(now_ms))

    def succeeded(self, key: MirrorKey, now_ms: int) -> None:
        pending = self._pending[key]
        self._stuck.pop(key.partition, None)
        self._end_turn(key, now_ms)
        if pending.changed_again_ms is None:
            del self._pending[key]
            if self._waiting:
                self.changed(next(iter(self._waiting)), now_ms)
        else:
            self._pending[key] = _Pending(pending.changed_again_ms)
            self._due.set(key, now_ms + COALESCE_MS)

    def failed(self, key: MirrorKey, now_ms: int, *, timed_out: bool = False) -> None:
        pending = self._pending[key]
        pending.failures += 1
        pending.changed_again_ms = None
        others_due_ms = now_ms + PAUSE_FIRST_MS
        if timed_out:
            stuck = self._stuck.setdefault(key.partition, _Stuck(0, 0))
            stuck.failures += 1
            stuck.until_ms = others_due_ms = now_ms + _pause_ms(stuck.failures)
        self._end_turn(key, others_due_ms)
        self._due.set(key, now_ms + _pause_ms(pending.failures))

    def oldest_ms(self) -> int | None:
        """The time of the oldest change that is not mirrored yet."""
        return min((pending.since_ms for pending in self._pending.values()), default=None)

    def _is_running(self, key: MirrorKey) -> bool:
        turn = self._turns.get(key.partition)
        return turn is not None and turn.running == key

    def _end_turn(self, key: MirrorKey, others_due_ms: int) -> None:
        del self._turns[key.partition]
        if key.partition in self._queues:
            self._queues_due.set(key.partition, others_due_ms)


def _pause_ms(failures: int) -> int:
    return min(PAUSE_FIRST_MS << min(failures - 1, MAX_DOUBLINGS), PAUSE_LONGEST_MS)
