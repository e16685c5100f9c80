"""A topic that Pulsar's compactor compacts, and a log of messages with transactions on it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from gateway.fetching.committed_records import committed_records
from gateway.log.cleaning.cleaner import LogCleaner, Rules
from gateway.log.entries.log_entry import from_pulsar
from gateway.log.entries.message_entry import compaction_keys, encode_record
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.pulsar.position import Position
from protocol.kafka.batch import iter_headers, parse_header
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from protocol.pulsar.entry import NativeMessage, decompress, iter_messages
from protocol.pulsar.pulsar_commands_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from tests.support.records import decode_records
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene

MAX_BYTES = 1 << 24
ALL_GOES = Rules()
_SIZE = struct.Struct(">I")
_GONE = SingleMessageMetadata(compacted_out=True, payload_size=0).SerializeToString()


class CompactingTopic(FakeTopic):
    """Its readers get nothing that its compactor has removed, until the compacted log is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.status = "NOT_RUN"
        self._raw: dict[Position, tuple[bytes, MessageMetadata]] = {}

    async def compact(self, topic: str) -> None:
        self.status = "ERROR"
        if self.fails:
            return
        newest: dict[bytes, tuple[Position, int]] = {}
        for position, message in self._messages():
            if not message.compacted_out and message.key is not None:
                if len(message.value):
                    newest[message.key] = position, message.batch_index
                else:
                    newest.pop(message.key, None)
        self._keep(set(newest.values()))
        self.compacted_to = self.last
        self.compacted_ledger_id = 1
        self.status = "SUCCESS"

    def lose_compacted(self) -> None:
        """The compaction's cursor was deleted: readers get everything again."""
        self.compacted_away, self.compacted_to, self.compacted_ledger_id = set(), Position(-1, -1), -1
        for number, (position, index, payload, metadata) in enumerate(self.entries):
            self.entries[number] = position, index, *self._raw.pop(position, (payload, metadata))

    async def compaction_status(self, topic: str) -> str:
        return self.status

    def _messages(self) -> list[tuple[Position, NativeMessage]]:
        return [
            (position, message) for position, _, payload, metadata in self.entries
            if position not in self.compacted_away for message in iter_messages(metadata, payload, MAX_BYTES)
        ]  # fmt: skip

    def _keep(self, kept: set[tuple[Position, int]]) -> None:
        for number, (position, index, payload, metadata) in enumerate(self.entries):
            if position not in self._raw:
                self._raw[position] = payload, copy(metadata)
            plain = bytes(decompress(metadata, payload, MAX_BYTES))
            metadata.compression = CompressionType.NONE
            left = _rebatched(plain, {at for where, at in kept if where == position}, metadata.num_messages_in_batch)
            self.entries[number] = position, index, left, metadata
            if not any(where == position for where, _ in kept):
                self.compacted_away.add(position)


def copy(metadata: MessageMetadata) -> MessageMetadata:
    found = MessageMetadata()
    found.CopyFrom(metadata)
    return found


def _rebatched(plain: bytes, kept: set[int], total: int) -> bytes:
    found, at = b"", 0
    for number in range(total):
        (size,) = _SIZE.unpack_from(plain, at)
        head = plain[at + 4 : at + 4 + size]
        end = at + 4 + size + SingleMessageMetadata.FromString(head).payload_size
        found += plain[at:end] if number in kept else _SIZE.pack(len(_GONE)) + _GONE
        at = end
    return found


class Put(NamedTuple):
    producer_id: int
    offset: int
    key: bytes
    value: bytes | None


class CleanedScene(TransactionScene):
    """Transactions that write keys."""

    topic: CompactingTopic

    def __init__(self) -> None:
        super().__init__()
        self.topic = CompactingTopic()
        self.compacted = True
        self.open: list[Put] = []
        self.committed: list[Put] = []
        self.cleaner: LogCleaner | None = None
        self._values = count()

    @property
    def newest(self) -> dict[bytes, bytes]:
        """The final values of a reader of committed records, which stops at the first open transaction."""
        stable = min((each.offset for each in self.open), default=1 << 60)
        before = sorted((each for each in self.committed if each.offset < stable), key=lambda each: each.offset)
        return {key: value for key, value in {each.key: each.value for each in before}.items() if value is not None}

    async def put(self, producer_id: int, key: bytes, *, delete: bool = False, own_key: bool = True) -> None:
        sequence = self.sequences.get((producer_id, 0), 0)
        self.sequences[producer_id, 0] = sequence + 1
        value = None if delete else b"%d" % next(self._values)
        record = Record(0, 1_000, key, value, ())
        data = encode_batch(
            [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        header = parse_header(data)
        await self.log.prepare(header, 1)
        writes = self.log.transactional_writes
        if writes.needs_verification(header):
            writes.verifications.verified(writes.verifications.begin(producer_id), producer_id, 0)
        compaction_key = next(compaction_keys()) if own_key else None
        messages = encode_record(record, compacted=True, compaction_key=compaction_key)

        def written(offset: int, error: Exception | None) -> None:
            assert error is None
            self.open.append(Put(producer_id, offset, key, value))

        self.log.append(memoryview(data), header, 1, written, messages)
        await self.write()

    async def end(self, producer_id: int, kind: MarkerType, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        await self.log.prepare_marker()
        marker = TransactionMarker(kind, producer_id, epoch, coordinator_epoch)
        written = self.log.transactional_writes.append_marker(marker, 0, MarkerForm(as_message=True, compacted=True))
        await self.write()
        await written
        if kind is MarkerType.COMMIT:
            self.committed += [each for each in self.open if each.producer_id == producer_id]
        self.open = [each for each in self.open if each.producer_id != producer_id]

    async def clean(self, rules: Rules = ALL_GOES) -> None:
        if self.cleaner is None or self.cleaner.partition_log is not self.log:
            self.cleaner = LogCleaner(self.log)
        running = asyncio.create_task(self.cleaner.clean(rules))
        try:
            while not running.done():
                await self.write()
                await asyncio.sleep(0)
            running.result()
        except TimeoutError:
            assert self.topic.fails

    async def crash_while_cleaning(self, turns: int) -> None:
        """After some turns of the event loop. What was sent until then is written, and nothing after it."""
        running = asyncio.create_task(LogCleaner(self.log).clean(ALL_GOES))
        for _ in range(turns):
            await self.write()
            await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            await running


async def read(log: PartitionLog, topic: CompactingTopic) -> dict[bytes, bytes]:
    """Key → value, as a reader of committed records gets them after compaction."""
    await log.transactions.prepare_to_read(0)
    stable = log.transactions.last_stable_offset
    aborted = log.transactions.aborted_between(0, stable)
    found: dict[bytes, bytes | None] = {}
    for number, (position, *_) in enumerate(topic.entries):
        if position in topic.compacted_away:
            continue
        entry = from_pulsar(topic.entry_at(number), max_bytes=MAX_BYTES)
        assert entry is not None
        for part in committed_records([entry.data], aborted):
            for at, header in iter_headers(part):
                if not header.is_control and header.base_offset < stable:
                    for record in decode_records(part, at, header, MAX_BYTES):
                        assert record.key is not None
                        found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}
