"""What the last entries of a log show of transactions that were copied from other clusters."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.log.bounds import copied_transactions
from gateway.log.bounds.copied_transactions import FROM_THE_START, Replication
from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.bounds.transaction_flag import CHECKPOINT_AT, NONE_UP_TO, PROPERTY
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from protocol.pulsar.pulsar_commands_pb2 import KeyValue
from tests.unit.gateway.log.fake_pulsar import FakeTopic

REPLICATOR = "pulsar.repl.other"
ABSENT = Replication(is_replicated=True)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    monkeypatch.setattr(copied_transactions, "LOOK_BACK_ENTRIES", 3)
    topic = FakeTopic()
    topic.cursors = [REPLICATOR]
    return topic


async def replication(topic: FakeTopic) -> Replication:
    return (await read_bounds(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")).replication


def write(topic: FakeTopic, *, known: str = "", is_copy: bool = False, native: bool = False, tag: str = "") -> None:
    topic.write(b"", 1, "writer", 0, native=native)
    metadata = topic.entries[-1][3]
    for key, value in ((NONE_UP_TO, known), (CHECKPOINT_AT, tag)):
        if value:
            metadata.properties.append(KeyValue(key=key.encode(), value=value.encode()))
    if is_copy:
        metadata.replicated_from = "other"


@pytest.mark.parametrize("is_copy", [True, False])
@pytest.mark.parametrize("followed_by", [0, 1, 5])
async def test_copied_transactions_that_native_producers_followed(
    topic: FakeTopic, is_copy: bool, followed_by: int
) -> None:
    """Their messages may be copies, too, or this cluster's own. They name no checkpoint."""
    for _ in range(2):
        write(topic, is_copy=True, tag="1:2")
    for _ in range(followed_by):
        write(topic, is_copy=is_copy, native=True)
    found = FROM_THE_START if followed_by <= 3 else None
    assert await replication(topic) == Replication(is_replicated=True, transactions_after=found)
    topic.cursors = []
    if followed_by > 0 and not is_copy:
        assert await replication(topic) == Replication(), "nothing shows that it is replicated"
    else:
        assert await replication(topic) == Replication(is_replicated=True, transactions_after=found)


async def test_what_a_gateway_had_not_read_is_read_by_the_next_one(topic: FakeTopic) -> None:
    for known, found in (("3:3", None), ("3:2", Position(3, 2)), ("3:4", None), ("2:9", Position(2, 9))):
        topic.entries.clear()
        topic.entry_id = 0
        for _ in range(4):
            write(topic)
        write(topic, known=known)
        assert await replication(topic) == ABSENT._replace(transactions_after=found), known


@pytest.mark.parametrize("known", ["3:0", "3:2"])
async def test_the_same_behind_native_messages(topic: FakeTopic, known: str) -> None:
    """What was not read may begin before the messages that are looked at."""
    for _ in range(3):
        write(topic)
    write(topic, known=known)
    for _ in range(2):
        write(topic, native=True)
    found = Position(3, 0) if known == "3:0" else None
    assert await replication(topic) == ABSENT._replace(transactions_after=found)


async def test_what_a_gateway_of_another_cluster_had_read_says_nothing(topic: FakeTopic) -> None:
    write(topic, is_copy=True, known="1:1")
    assert await replication(topic) == ABSENT


async def test_entries_of_a_gateway_that_says_nothing(topic: FakeTopic) -> None:
    """It is of an older version, or did not know that the log is replicated."""
    write(topic, is_copy=True, tag="1:2")
    write(topic)
    assert await replication(topic) == ABSENT._replace(transactions_after=FROM_THE_START)


async def test_a_flag_that_was_not_written_yet(topic: FakeTopic) -> None:
    """The gateway was killed while it wrote it."""
    write(topic, tag="3:0")
    assert await replication(topic) == ABSENT._replace(transactions_after=FROM_THE_START)
    topic.properties[PROPERTY] = "3:0"
    assert await replication(topic) == ABSENT


async def test_what_a_native_producer_took_over_from_another_topic(topic: FakeTopic) -> None:
    """A native program that copies messages may copy their properties, too."""
    topic.cursors = []
    write(topic, native=True, tag="3:0")
    assert await replication(topic) == Replication()


@pytest.mark.parametrize("cursors", [[REPLICATOR], []])
async def test_an_empty_log(topic: FakeTopic, cursors: list[str]) -> None:
    topic.cursors = cursors
    assert await replication(topic) == Replication(is_replicated=bool(cursors))


async def test_what_native_producers_say_does_not_count(topic: FakeTopic) -> None:
    """Neither hides copied transactions, nor has the whole log read."""
    write(topic, is_copy=True, tag="1:2")
    write(topic, native=True, known="3:0")
    assert await replication(topic) == ABSENT._replace(transactions_after=FROM_THE_START)
    topic.entries.clear()
    topic.entry_id = 0
    write(topic)
    write(topic, native=True, tag="3:0")
    assert await replication(topic) == ABSENT


async def test_a_position_that_pulsar_cannot_have_says_nothing(topic: FakeTopic) -> None:
    write(topic, known=f"2:{10**30}")
    assert await replication(topic) == ABSENT


async def test_a_copy_says_nothing_about_a_third_cluster(topic: FakeTopic) -> None:
    """What is known was read by gateways of this cluster: a property says how far, or one of their last entries."""
    topic.cursors = [REPLICATOR, "pulsar.repl.third"]
    several = ABSENT._replace(has_several_sources=True)
    for _ in range(6):
        write(topic, is_copy=True)
    assert await replication(topic) == several._replace(transactions_after=FROM_THE_START)
    told = {"3:0": Position(3, 0), "3:2": None, "3:5": None, "9:9": None, "nonsense": FROM_THE_START}
    for noted, found in told.items():
        topic.properties[NONE_UP_TO] = noted
        assert await replication(topic) == several._replace(transactions_after=found), noted
    topic.properties[NONE_UP_TO] = "3:0"
    write(topic, known="2:7")
    write(topic, is_copy=True)
    write(topic, is_copy=True)
    assert await replication(topic) == several._replace(transactions_after=Position(3, 0))
    topic.cursors = [REPLICATOR]
    assert await replication(topic) == ABSENT


async def test_a_gateway_that_had_read_nothing(topic: FakeTopic) -> None:
    write(topic, known="-1:-1")
    write(topic, native=True)
    assert await replication(topic) == ABSENT._replace(transactions_after=FROM_THE_START)
