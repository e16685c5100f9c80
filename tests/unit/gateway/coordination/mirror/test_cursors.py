"""Cursors move to offsets, forward and backward, over entries and ledgers of any size, and can be read back."""

import asyncio
from typing import cast
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coordination.mirror.cursors import Cursor, Cursors, TopicCursors
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from tests.unit.gateway.coordination.mirror.fake_cursors import FakeTopic

TENS = [[10, 10], [10]]


def cursors_of(topic: FakeTopic) -> Cursors:
    return Cursors(cast(PulsarClient, topic), cast(AdminClient, topic), replicated=False)


async def move(cursors: Cursors, name: str, offset: int) -> None:
    found = None if cursors.knows("t", name) else (await cursors.read("t")).by_name.get(name)
    await cursors.move("t", name, offset, None, found)


async def offset_read_back(topic: FakeTopic, name: str) -> int:
    cursors = cursors_of(topic)
    found = await cursors.read("t")
    return await cursors.offset_at("t", found, found.by_name[name])


ledgers = st.lists(st.lists(st.integers(1, 12), max_size=8), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(ledgers, st.lists(st.tuples(st.integers(0, 120), st.booleans()), min_size=1, max_size=6))
def test_any_moves(counts: list[list[int]], moves: list[tuple[int, bool]]) -> None:
    async def follow() -> None:
        topic = FakeTopic(counts)
        cursors = cursors_of(topic)
        for offset, restarted in moves:
            if restarted:
                cursors = cursors_of(topic)
            await move(cursors, "g", offset)
            unread = sum(entry.index >= offset for entry in topic.entries.values() if entry.index is not None)
            assert topic.backlog("g") == unread
            assert topic.cursors["g"][1] == {"kafka.offset": offset}
            assert await offset_read_back(topic, "g") == offset

    asyncio.run(follow())


@pytest.mark.parametrize(
    ("position", "offset", "start"),
    [
        (Position(3, 0), None, 10),
        (Position(3, 0), 15, 15),
        (Position(3, -1), None, 0),
        (Position(3, 1), 5, 20),  # moved on by message TTL, which keeps the offset
        (Position(6, -1), None, 20),
        (Position(6, 0), None, 30),
        (Position(1, 7), None, 0),  # its ledger was deleted
        (Position(9, -1), None, 30),
    ],
)
async def test_start_at_a_cursor(position: Position, offset: int | None, start: int) -> None:
    topic = FakeTopic(TENS)
    cursors = TopicCursors({}, topic.ledgers)
    assert await cursors_of(topic).offset_at("t", cursors, Cursor(position, offset)) == start


async def test_nothing_is_done_for_what_stands_right() -> None:
    topic = FakeTopic(TENS)
    topic.cursors["g"] = (Position(6, 0), {"kafka.offset": 15})  # moved on by message TTL: it stays there
    await move(cursors_of(topic), "g", 15)
    assert topic.cursors["g"][0] == Position(6, 0)


async def test_deleting_twice_is_deleted() -> None:
    topic = FakeTopic(TENS)
    cursors = cursors_of(topic)
    await move(cursors, "a~2Fb", 5)
    assert set((await cursors.read("t")).by_name) == {"a~2Fb"}
    assert await cursors.names("t") == {"a~2Fb"}
    await cursors.delete("t", "a~2Fb")
    await cursors.delete("t", "a~2Fb")
    assert topic.cursors == {}


async def test_a_cursor_that_another_gateway_moved_on_is_moved_back() -> None:
    topic = FakeTopic(TENS)
    cursors = cursors_of(topic)
    await move(cursors, "g", 10)
    topic.cursors["g"] = (Position(6, 0), {"kafka.offset": 30})
    cursors.forget()
    await move(cursors, "g", 20)
    assert topic.backlog("g") == 1
    assert await offset_read_back(topic, "g") == 20


async def test_a_reset_to_before_what_another_cluster_has_read() -> None:
    """It is behind the last commit here: an acknowledgement alone would have no effect."""
    topic = FakeTopic(TENS)
    cursors = Cursors(cast(PulsarClient, topic), cast(AdminClient, topic), replicated=True)
    await move(cursors, "g", 10)
    topic.cursors["g"] = (Position(6, 0), {})
    await move(cursors, "g", 20)
    assert topic.cursors["g"][1] == {"kafka.offset": 20}
    assert topic.backlog("g") == 1


async def test_an_empty_topic_that_was_made_anew() -> None:
    """Pulsar names the same last entry as before: none."""
    cursors = cursors_of(topic := FakeTopic([[]]))
    await move(cursors, "g", 5)
    topic.ledgers, topic.cursors = FakeTopic([[], []]).ledgers[1:], {}
    await move(cursors, "g", 7)
    assert topic.cursors["g"] == (Position(topic.ledgers[0].ledger_id, -1), {"kafka.offset": 7})


async def test_names_of_a_partition_that_was_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of the admin API that reads the metadata store fails in this case."""
    topic = FakeTopic(TENS)
    answers = {"managed_ledger": AdminError(500, "Request failed."), "internal_stats": AdminError(404, "not created")}
    for method, answer in answers.items():
        monkeypatch.setattr(topic, method, AsyncMock(side_effect=answer))
    assert await cursors_of(topic).names("t") == frozenset()
    answers["internal_stats"].status = 503
    with pytest.raises(AdminError):
        await cursors_of(topic).names("t")


async def test_what_is_known_of_a_topic_that_is_deleted_is_forgotten() -> None:
    topic = FakeTopic(TENS)
    cursors = cursors_of(topic)
    names = [f"persistent://a/b/{name}" for name in ("t-partition-0", "t-partition-1", "t", "t2-partition-0", "at")]
    for name in names:
        await cursors.move(name, "g", 5, None, None)
    assert all(cursors.knows(name, "g") for name in names)
    cursors.forget_topic("t")
    assert [name for name in names if cursors.knows(name, "g")] == names[3:]
