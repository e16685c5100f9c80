"""Transactions of another cluster, which replication brings: no gateway here has written their flag."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from gateway.log.bounds.transaction_flag import NONE_UP_TO, PROPERTY, none_up_to
from gateway.log.reading import receipt_lookup
from gateway.log.transactions import flag
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import PLAIN, Answers, answered, batch
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided


def copy_all(source: FakeTopic, topic: FakeTopic) -> None:
    for number, (_, _, data, metadata) in enumerate(source.entries[len(topic.entries) :], len(topic.entries)):
        topic.write(data, metadata.num_messages_in_batch, "pulsar.repl.another", number)
        copied = topic.entries[-1][3]
        copied.ClearField("properties")
        copied.properties.extend(metadata.properties)
        copied.replicated_from = "another"


async def two_logs() -> tuple[TransactionScene, TransactionScene]:
    """The log of another cluster and that of this one, with one record, which was copied. Both are open."""
    another, here = TransactionScene(), TransactionScene()
    await another.lead()
    await another.plain()
    copy_all(another.topic, here.topic)
    await here.lead()
    return another, here


async def write_transactions(scene: TransactionScene) -> None:
    """One is aborted, one stays open."""
    await scene.begin(1)
    await scene.end(1, MarkerType.ABORT)
    await scene.begin(2)


async def test_copies_of_two_clusters_that_no_gateway_here_has_read(no_settling: None) -> None:
    """The last copy is of the one whose log has no transactions."""
    another, third, here = TransactionScene(), TransactionScene(), TransactionScene()
    here.topic.cursors = ["pulsar.repl.another", "pulsar.repl.third"]
    for scene in (another, third):
        await scene.lead()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    for _ in range(len(here.topic.entries) + 70):
        await third.plain()
    copy_all(third.topic, here.topic)
    await here.lead()
    assert await decided(here.log) == (2, [(1, 0)])
    await close(here, another, third)


async def test_what_was_read_in_vain_is_read_once(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flag, "NOTED_EVERY", 30)
    third, here = TransactionScene(), TransactionScene()
    here.topic.cursors = ["pulsar.repl.another", "pulsar.repl.third"]
    await third.lead()
    for _ in range(100):
        await third.plain()
    copy_all(third.topic, here.topic)
    for is_first in (True, False):
        here.topic.readers.clear()
        await here.lead()
        assert await decided(here.log) == (100, [])
        await let_callbacks_run()
        assert here.topic.properties[NONE_UP_TO] == "3:99"
        assert (0 in [reader.first_entry for reader in here.topic.readers[1:]]) is is_first
        if is_first:
            await here.log.close()
    for _ in range(70):
        await third.plain()
    copy_all(third.topic, here.topic)
    await here.log.end.refresh()
    await let_callbacks_run()
    assert here.topic.properties[NONE_UP_TO] == "3:159"
    await third.begin(1)
    copy_all(third.topic, here.topic)
    await here.log.end.refresh()
    for _ in range(30):
        await third.plain()
    copy_all(third.topic, here.topic)
    await here.log.end.refresh()
    assert here.topic.properties[NONE_UP_TO] == "3:159"
    assert await decided(here.log) == (170, [])
    await close(here, third)


async def close(*scenes: TransactionScene) -> None:
    for scene in scenes:
        await scene.log.close()


async def test_what_was_copied_before_a_log_is_opened(no_settling: None) -> None:
    another, here = TransactionScene(), TransactionScene()
    await another.lead()
    await another.plain()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    for _ in range(2):
        await here.lead()
        assert await decided(here.log) == (3, [(1, 1)])
        await here.log.close()
    assert PROPERTY in here.topic.properties
    await another.log.close()


async def test_what_is_copied_while_a_log_is_open(no_settling: None) -> None:
    another, here = await two_logs()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    await here.log.end.refresh()
    assert await decided(here.log) == (3, [(1, 1)])
    await close(here, another)


async def test_what_is_copied_behind_a_marker_of_brokers(no_settling: None) -> None:
    """The log's end jumps over the marker, which nobody reads."""
    another, here = await two_logs()
    another.topic.write_marker()
    here.topic.write_marker()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    await here.log.end.refresh()
    assert await decided(here.log) == (4, [(1, 2)])
    await close(here, another)


async def test_what_was_copied_and_never_read(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry behind it was looked up for its receipt."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    another, here = await two_logs()
    await here.log.prepare(PLAIN, 1)
    await here.log.end.refresh()
    for reader in here.topic.readers:
        reader.permits = -1_000_000
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    answers: Answers = []
    here.log.append(batch(), PLAIN, 1, lambda offset, error: answers.append((offset, error)))
    await here.write()
    assert await answered(answers) == (4, None)
    assert await decided(here.log) == (3, [(1, 1)])
    await close(here, another)


async def test_where_an_open_transaction_came_from(no_settling: None) -> None:
    another, here = TransactionScene(), TransactionScene()
    await another.lead()
    await another.begin(1, count=2)
    copy_all(another.topic, here.topic)
    await here.lead()
    await here.begin(2, count=2)
    assert await decided(here.log) == (0, [])
    transactions = here.log.transactions
    assert {number: await transactions.is_copied(each.first_offset) for number, each in transactions.open.items()} == {
        1: True,
        2: False,
    }
    await close(here, another)


async def test_a_log_that_is_closed_before_its_first_transaction_is_read(no_settling: None) -> None:
    """A marker of a broker preceded it, and then this gateway wrote the last entry."""
    another, here = await two_logs()
    another.topic.write_marker()
    here.topic.write_marker()
    await another.begin(1)
    copy_all(another.topic, here.topic)
    await here.log.end.refresh()
    await here.plain()
    await here.log.close()
    await here.lead()
    assert await decided(here.log) == (2, [])
    await close(here, another)


async def replicated_logs() -> tuple[TransactionScene, TransactionScene]:
    """The same, and the broker here copies, too. This gateway's reader gets nothing more."""
    another, here = await two_logs()
    await here.log.close()
    here.topic.cursors = ["pulsar.repl.another"]
    await here.lead()
    await here.log.prepare(PLAIN, 1)
    await here.log.end.refresh()
    for reader in here.topic.readers:
        reader.permits = -1_000_000
    return another, here


def append_plain(scene: TransactionScene) -> Answers:
    answers: Answers = []
    scene.log.append(batch(), PLAIN, 1, lambda offset, error: answers.append((offset, error)))
    return answers


async def test_the_gateway_is_killed_before_it_has_read_what_was_copied(no_settling: None) -> None:
    """Its own entry follows, and says that it had not read so far."""
    another, here = await replicated_logs()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    answers = append_plain(here)
    await here.write()
    assert not answers
    killed = here.log
    await here.lead()
    assert await decided(here.log) == (3, [(1, 1)])
    await here.begin(3)
    await here.log.close()
    await here.lead()
    assert await decided(here.log) == (3, [(1, 1)])
    await killed.close()
    await close(here, another)


async def test_the_gateway_is_killed_before_it_has_written_the_flag(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    another, here = await two_logs()
    here.topic.cursors = ["pulsar.repl.another"]
    await here.log.close()
    await here.lead()
    put_properties, here.topic.properties = here.topic.put_properties, {}
    monkeypatch.setattr(here.topic, "put_properties", AsyncMock(side_effect=ConnectionLostError("lost")))
    await here.log.prepare(PLAIN, 1)
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    await here.log.end.refresh()
    append_plain(here)
    await here.write()
    killed = here.log
    monkeypatch.setattr(here.topic, "put_properties", put_properties)
    await here.lead()
    assert await decided(here.log) == (3, [(1, 1)])
    await killed.close()
    await close(here, another)


async def test_what_was_missed_is_read_before_others_would_have_to(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client asks for it: the next entry is enough. Otherwise the next gateway would have ever more to read."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    another, here = await replicated_logs()
    for _ in range(3):
        await another.plain()
    copy_all(another.topic, here.topic)
    answers = append_plain(here)
    await here.write()
    assert await answered(answers) == (4, None)
    assert not here.log.transactions.loaded
    append_plain(here)
    await let_callbacks_run()
    assert here.log.transactions.loaded
    append_plain(here)
    await here.write()
    assert [none_up_to(here.topic.entry_at(number)) for number in (4, 5, 6)] == [
        Position(3, 0), Position(3, 0), Position(3, 4),
    ]  # fmt: skip
    await close(here, another)


async def test_what_a_reader_left_out_is_read_again(no_settling: None) -> None:
    """One that is opened while entries are written may miss some of them."""
    another, here = await replicated_logs()
    await write_transactions(another)
    copy_all(another.topic, here.topic)
    for reader in here.topic.readers:
        reader.next_entry, reader.permits = len(here.topic.entries), 100
    await here.plain()
    assert await decided(here.log) == (3, [(1, 1)])
    await close(here, another)


@pytest.mark.parametrize("cursors", [[], ["pulsar.repl.another"]])
async def test_entries_of_a_log_that_is_not_replicated_say_nothing(no_settling: None, cursors: list[str]) -> None:
    scene = TransactionScene()
    scene.topic.cursors = cursors
    await scene.lead()
    await scene.log.prepare(PLAIN, 1)
    append_plain(scene)
    await scene.write()
    assert (none_up_to(scene.topic.entry_at(0)) is not None) == bool(cursors)
    await scene.log.close()


async def test_replication_that_begins_while_the_log_is_open(no_settling: None) -> None:
    another, here = await two_logs()
    await here.log.prepare(PLAIN, 1)
    await another.plain()
    copy_all(another.topic, here.topic)
    await here.log.end.refresh()
    append_plain(here)
    await here.write()
    assert none_up_to(here.topic.entry_at(2)) == Position(3, 1)
    await close(here, another)
