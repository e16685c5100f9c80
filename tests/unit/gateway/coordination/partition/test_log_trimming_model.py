"""Random histories of a log that is trimmed: a replay of the rest gives the same state as all records of clients.

Snapshots are interrupted anywhere: by a crash, by another leader, by a log that refuses a record, by a failing admin
API. The replay of each new leader is compared with all that clients ever appended.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coordination.partition import log_reading, log_snapshot, log_trimming
from gateway.coordination.partition.internal_log import Record
from gateway.coordination.partition.log_trimming import MAX_AGE_MS, TrimmedDuringReadError
from gateway.pulsar.errors import ConnectionLostError
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic, FakeProducer, new_trimming
from tests.unit.gateway.coordination.partition.test_log_trimming import TIMEOUT_S, Leader

KEYS = [b"a", b"b", b"c", b"d"]
MAX_MESSAGE_BYTES = 2_000
TURNS_MAX = 20

CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("append"), CHANGES),
    st.tuples(st.just("refused"), CHANGES),
    st.tuples(st.just("turns"), st.integers(1, TURNS_MAX)),
    st.tuples(st.just("turns"), st.integers(1, TURNS_MAX)),
    st.tuples(st.just("confirm"), st.integers(1, 5)),
    st.tuples(
        st.sampled_from(["hold", "release", "snapshots", "snapshots", "crash", "superseded", "trim", "no_admin"]),
        st.just(0),
    ),
)


def counting(records: Sequence[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """The last record of each key."""
    last = {key: value for key, value in records if key in KEYS}
    return {key: value for key, value in last.items() if key is not None and value is not None}


class Life:
    """Its methods are the steps. A leader's first snapshot is due immediately, others when something is written."""

    def __init__(self) -> None:
        self.topic = FakeInternalTopic()
        self.topic.cursor_properties = {}
        self.now_ms = 0
        self.values = 0
        self.trimming: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Retried, as a coordinator does, when the previous leader has just trimmed the log."""
        self.now_ms += MAX_AGE_MS
        self.leader = Leader(self.topic, new_trimming(self.topic, 0, self.now_ms))
        try:
            await self.leader.open()
        except TrimmedDuringReadError:
            await self.start()
            return
        assert counting(self.leader.replayed) == counting(self._appended_by_clients())

    def _appended_by_clients(self) -> list[tuple[bytes | None, bytes | None]]:
        """A value is written by a client once; later occurrences are copies. Tombstones are never copied."""
        whole = FakeInternalTopic()
        whole.entries = self.topic.history
        seen = set()
        appended = []
        for record in (record for records in whole.records() for record in records):
            if record[1] is None or record not in seen:
                appended.append(record)
            seen.add(record)
        return appended

    async def append(self, changes: list[tuple[bytes, bool]]) -> None:
        self._append([(key, None if removed else self._value()) for key, removed in changes])

    async def refused(self, changes: list[tuple[bytes, bool]]) -> None:
        self._append([(key, b"x" * MAX_MESSAGE_BYTES) for key, _ in changes])

    def _value(self) -> bytes:
        self.values += 1
        return b"%d" % self.values

    def _append(self, records: list[Record]) -> None:
        self.leader.log.append(records, lambda error, now_ms: None)

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def confirm(self, count: int) -> None:
        for _ in range(count):
            self.topic.producers[-1].confirm()
            await asyncio.sleep(0)

    async def hold(self, _: int) -> None:
        self.topic.holds = True

    async def release(self, _: int) -> None:
        self.topic.holds = False
        while self.topic.producers[-1].holds_some:
            self.topic.producers[-1].confirm()

    async def snapshots(self, _: int) -> None:
        if not any(task.get_name() == str(self.now_ms) for task in self.trimming):
            task = asyncio.create_task(self.leader.trimming.run(self.leader.log), name=str(self.now_ms))
            self.trimming.add(task)
            task.add_done_callback(self.trimming.discard)

    async def crash(self, _: int) -> None:
        self.topic.producers[-1].lose()
        await self.superseded(0)

    async def superseded(self, _: int) -> None:
        """The previous leader continues as long as it can."""
        self.topic.holds = False
        self.topic.admin_failures.clear()
        await self.start()

    async def trim(self, _: int) -> None:
        self.topic.trim()

    async def no_admin(self, _: int) -> None:
        self.topic.admin_failures.append(ConnectionLostError("no admin API"))

    async def end(self) -> None:
        """Snapshots without faults; everything before them is deleted."""
        await self.superseded(0)
        before = dict(self.topic.cursor_properties)
        await self.snapshots(0)
        async with asyncio.timeout(TIMEOUT_S):
            while self.topic.cursor_properties == before:
                await asyncio.sleep(0)
        self.topic.trim()
        await self.start()
        for task in self.trimming:
            task.cancel()


@settings(max_examples=300)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_the_trimmed_log_has_the_state_of_the_whole_log(steps: list[tuple[str, object]]) -> None:
    async def live() -> None:
        life = Life()
        await life.start()
        for name, what in steps:
            await getattr(life, name)(what)
        await life.end()

    with ExitStack() as patches:
        for where, name, value in (
            (log_reading, "SLICE_RECORDS", 2),
            (log_snapshot, "SLICE_RECORDS", 2),
            (log_trimming, "CHECK_S", 0.0),
            (log_trimming, "RETRY_FIRST_S", 0.0),
            (FakeProducer, "max_message_bytes", MAX_MESSAGE_BYTES),
        ):
            patches.enter_context(mock.patch.object(where, name, value))
        asyncio.run(live())
