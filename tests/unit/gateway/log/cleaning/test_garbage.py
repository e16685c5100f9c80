"""What is removed from a compacted log with transactions, compared with what Kafka's readers must still see."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.cleaning import garbage as module
from gateway.log.cleaning.garbage import Garbage, Share, SharedKeysError, TooManyKeysError, ViewRecord
from gateway.log.transactions.aborted_list import AbortedTransaction

LATER = 1_000
"""An offset."""


class Message(NamedTuple):
    """A message of a log; a marker has no key."""

    offset: int
    key: bytes | None
    value: int | None
    producer_id: int | None
    has_compaction_key: bool = True

    @property
    def compaction_key(self) -> bytes | None:
        return b"%d" % self.offset if self.has_compaction_key else None


class Log(NamedTuple):
    messages: list[Message]
    aborted: list[AbortedTransaction]

    def is_aborted(self, message: Message) -> bool:
        return any(
            each.producer_id == message.producer_id and each.first_offset <= message.offset <= each.last_offset
            for each in self.aborted
        )

    def newest(self, left: list[Message]) -> dict[bytes, int]:
        """The final values of a reader of committed records, from the remaining messages."""
        found: dict[bytes, int | None] = {}
        for message in left:
            if message.key is not None and not self.is_aborted(message):
                found[message.key] = message.value
        return {key: value for key, value in found.items() if value is not None}


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Producers write to few keys, in overlapping transactions; at the end all are decided."""
    messages: list[Message] = []
    aborted: list[AbortedTransaction] = []
    first: dict[int, int] = {}

    def end(producer_id: int, *, commit: bool) -> None:
        offset = len(messages)
        messages.append(Message(offset, None, None, None))
        began = first.pop(producer_id)
        if not commit:
            aborted.append(AbortedTransaction(producer_id, began, offset, 0))

    steps = st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans(), st.sampled_from(["write", "plain", "end"]))
    for producer_id, key, flag, step in draw(st.lists(steps, max_size=60)):
        offset = len(messages)
        value = None if flag and key % 2 else offset
        if step == "end" and producer_id in first:
            end(producer_id, commit=flag)
        elif step == "plain":
            messages.append(Message(offset, b"k%d" % key, value, None, has_compaction_key=flag or value is None))
        elif step == "write":
            first.setdefault(producer_id, offset)
            messages.append(Message(offset, b"k%d" % key, value, producer_id))
    for producer_id in [*first]:
        end(producer_id, commit=draw(st.booleans()))
    return Log(messages, aborted)


def collected(log: Log, left: list[Message], deletions_before: int, shares: int = 1) -> Garbage:
    found = Garbage(log.aborted, deletions_before)
    for number in range(shares):
        part = Garbage(log.aborted, deletions_before, Share(number, shares))
        for each in left:
            if each.key is None:
                part.add_marker(each.compaction_key)
            else:
                is_deletion, compaction_key = each.value is None, each.compaction_key
                part.add(ViewRecord(each.offset, each.key, compaction_key, is_deletion, each.producer_id))
        part.finish()
        found.compaction_keys += part.compaction_keys
        found.aborted |= part.aborted
    return found


def without(left: list[Message], compaction_keys: set[bytes]) -> list[Message]:
    return [each for each in left if each.compaction_key not in compaction_keys]


@given(logs(), st.data())
def test_readers_of_committed_records_end_with_the_same(log: Log, data: st.DataObject) -> None:
    """Also when only some removals of the first cleaning were done, in any order: a second one follows."""
    wanted = log.newest(log.messages)
    left = log.messages
    for deletions_before in (LATER, 0, LATER):
        keys = collected(log, left, deletions_before).compaction_keys
        done = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
        left = without(left, done)
        assert log.newest(left) == wanted


@given(logs(), st.integers(1, 4))
def test_little_is_left(log: Log, shares: int) -> None:
    left = log.messages
    for _ in range(2):
        left = without(left, set(collected(log, left, LATER, shares).compaction_keys))
    own = [each for each in left if each.has_compaction_key]
    assert not [each for each in own if each.key is None or log.is_aborted(each)]
    assert len({each.key for each in own}) == len(own)
    assert collected(log, left, LATER, shares).aborted == set()


@given(logs())
def test_shares_find_what_one_finds(log: Log) -> None:
    whole, parts = collected(log, log.messages, LATER), collected(log, log.messages, LATER, 3)
    assert sorted(whole.compaction_keys) == sorted(parts.compaction_keys)
    assert whole.aborted == parts.aborted


def test_deletions_are_kept_for_consumers_that_have_not_seen_them() -> None:
    deletion = ViewRecord(5, b"k", b"own", is_deletion=True, producer_id=None)
    for before, removed in ((5, []), (6, [b"own"])):
        found = Garbage([], before)
        found.add(deletion)
        found.finish()
        assert found.compaction_keys == removed


def test_keys_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 3)
    found = Garbage([], 0)
    with pytest.raises(TooManyKeysError):
        for number in range(4):
            found.add(ViewRecord(number, b"%d" % number, b"own", False, None))


def test_what_was_written_twice_stays_once() -> None:
    """Replication may write messages again."""
    found = Garbage([], 0)
    for offset, own in enumerate([b"1", b"2", b"1", b"2"]):
        found.add(ViewRecord(offset, b"k", own, False, None))
    found.finish()
    assert found.compaction_keys == [b"1"]


@pytest.mark.parametrize("finished", [False, True])
def test_transactions_without_compaction_keys_are_found(finished: bool) -> None:
    """Pulsar's compaction would remove the messages that they replace, also after the prefix."""
    found = Garbage([], 0)
    if finished:
        found.finish()
    found.add(ViewRecord(0, b"k", None, False, None))
    with pytest.raises(SharedKeysError):
        found.add(ViewRecord(1, b"k", None, False, producer_id=5))


def test_a_marker_without_a_compaction_key_is_no_longer_needed_below_the_stable_offset() -> None:
    found = Garbage([], 0)
    found.add_marker(None)
    found.finish()
    assert found.compaction_keys == []
    found.add_marker(b"own")
    with pytest.raises(SharedKeysError):
        found.add_marker(None)


def test_a_deletion_without_a_compaction_key_stops_the_compaction_before_which_older_values_are_not_removed() -> None:
    """Of a native producer, after the prefix: Pulsar would remove the deletion, and the key's old value would stay."""
    deletion = ViewRecord(1, b"k", None, is_deletion=True, producer_id=None)
    found = Garbage([], 0)
    found.add(ViewRecord(0, b"k", b"own", False, 4))
    found.finish()
    with pytest.raises(SharedKeysError):
        found.add(deletion)
    found = Garbage([], 0)
    found.add(ViewRecord(0, b"k", b"own", False, 4))
    found.add(deletion)
    found.finish()
    assert found.compaction_keys == [b"own"]
