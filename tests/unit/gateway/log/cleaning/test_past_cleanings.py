"""How long deletions stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from gateway.log.cleaning.past_cleanings import (
    MAX_CLEANINGS,
    PARTS,
    PastCleaning,
    cleaned_to,
    reached_by,
    read_cleanings,
    with_another,
    write_cleanings,
)
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.transactions.transaction_scene import shared_on

HOUR_MS = 3_600_000


def test_a_deletion_waits_from_its_first_cleaning_on() -> None:
    cleanings = [PastCleaning(10, 1_000), PastCleaning(20, 2_000)]
    assert [reached_by(cleanings, time_ms) for time_ms in (999, 1_000, 1_999, 2_000)] == [0, 10, 10, 20]
    assert reached_by([], 5) == 0


@given(st.lists(st.integers(1, HOUR_MS), min_size=1, max_size=200), st.integers(0, 2 * HOUR_MS))
def test_few_are_kept_and_no_deletion_goes_early_or_much_too_late(steps: list[int], kept_ms: int) -> None:
    everything: list[PastCleaning] = []
    kept: list[PastCleaning] = []
    now_ms = 0
    for number, step_ms in enumerate(steps):
        now_ms += step_ms
        everything.append(PastCleaning(number, now_ms))
        kept = with_another(kept, everything[-1], kept_ms)
        assert len(kept) <= MAX_CLEANINGS
        found = reached_by(kept, now_ms - kept_ms)
        assert found <= reached_by(everything, now_ms - kept_ms)
        assert found >= reached_by(everything, now_ms - kept_ms - kept_ms // PARTS - 1)


async def test_they_are_kept_in_pulsar() -> None:
    resources, topic = shared_on(fake := FakeTopic()).resources, "topic"
    assert await read_cleanings(resources, topic) == []
    await write_cleanings(resources, topic, [PastCleaning(1, 2), PastCleaning(3, 4)])
    assert await read_cleanings(resources, topic) == [PastCleaning(1, 2), PastCleaning(3, 4)]
    fake.properties["kafka.cleanings"] = "nonsense"
    assert await read_cleanings(resources, topic) == []


async def test_what_pulsar_has_compacted_of_transactions_is_not_clean() -> None:
    """Copies of another cluster came, with compaction keys of their own, while Pulsar compacted the topic by itself."""
    resources, topic = shared_on(fake := FakeTopic()).resources, "topic"
    stats = cast(InternalStats, SimpleNamespace(compacted_to=Position(3, 9)))
    assert await cleaned_to(resources, topic, stats) == Position(3, 9)
    for flag, expected in (("3:4", Position(3, 4)), ("4:0", Position(3, 9)), ("-1:-1", NO_ENTRY)):
        fake.properties["kafka.transactions.from"] = flag
        assert await cleaned_to(resources, topic, stats) == expected
