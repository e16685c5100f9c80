"""The compacted view of a log, message by message."""

from __future__ import annotations

import math
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from gateway.log.cleaning.garbage import Garbage, ViewRecord
from gateway.log.entries.chunked_messages import is_piece
from gateway.log.entries.decoding import is_heavy
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.message_entry import (
    NULL,
    StoredBatch,
    is_removal,
    record_key,
    record_words,
    stored_batches,
    stored_marker,
)
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.log.transactions.cleaned import end_of_view
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import TRANSACTIONAL_MASK
from protocol.pulsar.entry import EntryError, NativeMessage, iter_messages


class Limits(NamedTuple):
    """Only entries that end at or before an offset, and were written before some time, are cleaned. Those up to `old`
    were, whatever the clocks of their producers say."""

    offset: int
    written_ms: float = math.inf
    old: Position = NO_ENTRY


class Reached(NamedTuple):
    """Up to `offset`, after the entry at `position`. `is_full`: there may be more before the limits. What is
    behind `limited_at` is beyond them."""

    position: Position
    offset: int
    is_full: bool = False
    limited_at: Position | None = None


NOWHERE = Reached(NO_ENTRY, 0)


async def collect_garbage(garbage: Garbage, partition_log: PartitionLog, limits: Limits) -> Reached:
    """Read the whole view: the part that can be cleaned, and the rest to check it, because Pulsar compacts it, too.

    Raises as `Garbage.add` does, PulsarError and TimeoutError.
    """
    resources, topic = partition_log.resources, partition_log.source.pulsar_topic
    client, admin, most, decoding = resources.client, resources.admin, resources.limits, resources.decoding
    last = await end_of_view(resources, topic, partition_log.source.last_position, compacted=True)
    reached = NOWHERE
    if last.entry_id < 0:
        return reached
    reading = read_entries(client, topic, "earliest", last, read_compacted=True, admin=admin)
    async with aclosing(reading) as entries:
        async for entry in entries:
            if not garbage.finished:
                if garbage.is_full or _is_behind(entry, limits):
                    reached = reached._replace(is_full=garbage.is_full)
                    if not garbage.is_full:
                        reached = reached._replace(limited_at=_before(entry.position))
                    await decoding.run(garbage.finish, topic)
                elif entry.index is not None:
                    reached = Reached(entry.position, entry.index + 1)
            add = partial(add_entry, garbage, entry, most.max_decompressed_bytes)
            await decoding.run(add, topic) if is_heavy(entry) else add()
    if not garbage.finished:
        await decoding.run(garbage.finish, topic)
    return reached


def _before(position: Position) -> Position:
    return position._replace(entry_id=position.entry_id - 1)


def _is_behind(entry: Entry, limits: Limits) -> bool:
    if entry.index is None:  # Kafka has no such records
        return False
    is_young = entry.publish_time_ms > limits.written_ms and entry.position > limits.old
    return is_young or entry.index >= limits.offset


def add_entry(garbage: Garbage, entry: Entry, max_bytes: int) -> None:
    """Add the messages of any producer's entry. An unreadable entry stays. Raises as `Garbage.add` does."""
    if entry.index is None or entry.is_marker or is_piece(entry):
        return
    try:
        batches = stored_batches(entry.metadata)
        if batches is not None and is_removal(entry.metadata):
            return
        messages = [*iter_messages(entry.metadata, entry.payload, max_bytes)]
        marker = None if not batches else stored_marker(entry.metadata, batches[0])
    except EntryError:
        return
    if batches is not None and len(messages) != entry.num_messages:  # no gateway encrypts
        return
    if marker is not None:
        garbage.add_marker(_compaction_key_of_marker(messages))
        return
    base_offset = first_index(entry.index, entry.num_messages)
    producers = [None] * len(messages) if batches is None else _producers(batches)
    for number, (message, producer_id) in enumerate(zip(messages, producers, strict=True)):
        if not message.compacted_out:
            record = _record if batches is not None else _native_record
            garbage.add(record(base_offset + number, message, producer_id))


def _producers(batches: list[StoredBatch]) -> list[int | None]:
    """The producer of each message's transaction; None without one."""
    found: list[int | None] = []
    for batch in batches:
        producer_id = batch.producer_id if batch.attributes & TRANSACTIONAL_MASK else None
        found += [producer_id] * batch.record_count
    return found


def _record(offset: int, message: NativeMessage, producer_id: int | None) -> ViewRecord:
    compaction_key = None if message.ordering_key is None else message.key
    is_deletion = message.null_value or NULL in record_words(message)[0]
    return ViewRecord(offset, record_key(message), compaction_key, is_deletion, producer_id)


def _native_record(offset: int, message: NativeMessage, producer_id: int | None) -> ViewRecord:
    is_deletion = message.null_value or not message.value  # Pulsar's compaction makes no difference
    return ViewRecord(offset, message.key, None, is_deletion, producer_id)


def _compaction_key_of_marker(messages: list[NativeMessage]) -> bytes | None:
    return messages[0].key if len(messages) == 1 and not messages[0].compacted_out else None
