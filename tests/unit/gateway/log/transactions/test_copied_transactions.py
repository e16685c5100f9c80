"""Transactions of another cluster, which replication brings: no gateway here has written their flag."""

from __future__ import annotations

import pytest

from gateway.log.bounds.transaction_flag import PROPERTY
from gateway.log.reading import receipt_lookup
from protocol.kafka.transaction_marker import MarkerType
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
