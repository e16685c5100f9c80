"""Chunked native messages: one record at the offset of the last chunk, wherever reading begins."""

import asyncio
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.log.entries.chunked_messages import MAX_PENDING, PIECE_BYTES, ChunkedMessages
from gateway.log.entries.log_entry import Buffer, from_pulsar
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import iter_headers
from protocol.kafka.offset_span import is_gap
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, CompressionType, MessageMetadata
from tests.support.records import decode_records
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene as LogScene
from tests.unit.gateway.log.reading.test_catch_up import Scene as ReaderScene

MAX_BYTES = 10_000


def piece(uuid: bytes, number: int, total: int, data: bytes, index: int = 0) -> Entry:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=5_000, uuid=uuid, chunk_id=number,
        num_chunks_from_msg=total, total_chunk_msg_size=len(data) * total,
    )  # fmt: skip
    return Entry(Position(7, index), BrokerEntryMetadata(index=index), metadata, memoryview(bytearray(data)))


def records(data: Buffer) -> Iterator[tuple[int, bytes | None]]:
    for position, header in iter_headers(data):
        for record in [] if is_gap(header) else decode_records(data, position, header, 1 << 20):
            yield header.base_offset + record.offset_delta, record.value


def read(chunked: ChunkedMessages, *entries: Entry) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for index, entry in enumerate(entries):
        read = from_pulsar(entry, max_bytes=MAX_BYTES, chunked=chunked)
        assert read is not None
        assert (read.base_offset, read.next_offset) == (index, index + 1), "every piece has an offset"
        found.extend(records(read.data))
    return found


def test_messages_between_each_other() -> None:
    assert read(
        ChunkedMessages(MAX_BYTES),
        piece(b"a", 0, 3, b"a0"), piece(b"b", 0, 2, b"b0", 1), piece(b"a", 1, 3, b"a1", 2),
        piece(b"a", 1, 3, b"a1", 3), piece(b"b", 1, 2, b"b1", 4), piece(b"a", 2, 3, b"a2", 5),
    ) == [(4, b"b0b1"), (5, b"a0a1a2")]  # fmt: skip


def test_the_whole_is_compressed_not_the_pieces() -> None:
    data = zlib.compress(b"value" * 20)
    halves = piece(b"a", 0, 2, data[:10]), piece(b"a", 1, 2, data[10:], 1)
    for half in halves:
        half.metadata.compression, half.metadata.uncompressed_size = CompressionType.ZLIB, 100
    assert read(ChunkedMessages(MAX_BYTES), *halves) == [(1, b"value" * 20)]


@pytest.mark.parametrize("size", [MAX_BYTES // 2, MAX_BYTES // 2 + 1], ids=["large enough", "too large"])
def test_a_message_may_not_be_larger_than_the_limit(size: int) -> None:
    halves = piece(b"a", 0, 2, bytes(size)), piece(b"a", 1, 2, bytes(size), 1)
    found = read(ChunkedMessages(MAX_BYTES), *halves)
    assert found == ([(1, bytes(2 * size))] if 2 * size <= MAX_BYTES else [])


def test_what_never_ends_is_forgotten() -> None:
    chunked = ChunkedMessages(MAX_BYTES)
    begun = [piece(b"%02d" % number, 0, 2, b"x", number) for number in range(MAX_PENDING + 1)]
    assert read(chunked, *begun) == []
    assert chunked.size_bytes == MAX_PENDING * (len(b"00") + 1 + PIECE_BYTES)
    assert chunked.lacks_pieces(piece(b"00", 1, 2, b"x"))
    assert not chunked.lacks_pieces(piece(b"01", 1, 2, b"x"))


def test_pieces_without_bytes_are_not_free() -> None:
    """Any producer may write millions of them, of one message."""
    chunked, most = ChunkedMessages(MAX_BYTES), 0
    for number in range(1_000):
        from_pulsar(piece(b"a", number, 1_000_000, b"", number), max_bytes=MAX_BYTES, chunked=chunked)
        most = max(most, sum(map(len, chunked._pending.values())))
    assert most <= MAX_BYTES // PIECE_BYTES
    assert chunked.size_bytes <= MAX_BYTES


def test_the_names_of_messages_are_not_free() -> None:
    chunked = ChunkedMessages(MAX_BYTES)
    for number in range(MAX_PENDING):
        from_pulsar(piece(b"%d" % number + bytes(MAX_BYTES // 2), 0, 2, b"x"), max_bytes=MAX_BYTES, chunked=chunked)
        assert sum(map(len, chunked._pending)) <= chunked.size_bytes <= MAX_BYTES
    chunked.join(piece(b"a", 0, 2, b"x"))
    chunked.join(piece(b"a", 1, 2, b"x"))
    assert chunked.size_bytes == sum(len(uuid) + 1 + PIECE_BYTES for uuid in chunked._pending)


def write_message(topic: FakeTopic, uuid: bytes, pieces: int, between: int = 0) -> None:
    for number in range(pieces):
        topic.write_piece(b"%d" % number * 10, uuid, number, pieces)
        for _ in range(between):
            topic.write_piece(b"other", uuid + b"-other", 0, 2)


@settings(max_examples=30, deadline=None)
@given(offset=st.integers(0, 11), rolls=st.booleans(), between=st.integers(0, 2))
async def test_a_reader_that_begins_within_a_message_looks_back(offset: int, rolls: bool, between: int) -> None:
    scene = ReaderScene()
    write_message(scene.topic, b"first", 2)
    scene.topic.write_piece(b"0" * 10, b"a", 0, 4)
    if rolls:
        scene.topic.roll_over()
    for number in range(1, 4):
        for _ in range(between):
            scene.topic.write_piece(b"plain", b"", 0, 1)
        scene.topic.write_piece(b"%d" % number * 10, b"a", number, 4)
    last = scene.topic.next_index - 1
    offset = min(offset, last)
    whole: list[tuple[int, bytes | None]] = []
    while offset <= last:
        found = await scene.read(offset, 1 << 20)
        whole.extend(record for chunk in found.chunks for record in records(bytes(chunk)))
        assert found.next_offset > offset
        offset = found.next_offset
    assert whole[-1] == (last, b"".join(b"%d" % number * 10 for number in range(4)))
    assert sum(value != b"plain" for _, value in whole) == 1 + (len(whole) > 1 and whole[0][0] == 1)
    scene.readers.close_all(scene.log)


async def test_a_message_of_impossibly_many_pieces_is_not_looked_for() -> None:
    """Any producer may write such a piece: all of the log would be read again, three times for each."""
    scene = ReaderScene()
    scene.topic.write_piece(b"whole", b"", 0, 1)
    for number in range(3):
        scene.topic.write_piece(b"x", b"hostile%d" % number, 2**31 - 2, 2**31 - 1)
        scene.topic.entries[-1][3].total_chunk_msg_size = 1
    await scene.read_all(0, 1 << 20)
    assert len(scene.topic.readers) == 1
    scene.readers.close_all(scene.log)


async def test_the_search_for_lost_pieces_ends() -> None:
    scene = ReaderScene()
    for number in range(20):
        scene.topic.write_piece(b"x", b"lost%d" % number, 1, 2)
    await scene.read_all(0, 1 << 20)
    assert len(scene.topic.readers) == 1 + 3 * 20
    scene.readers.close_all(scene.log)


async def test_what_others_append_is_read_whole_though_its_pieces_came_one_by_one() -> None:
    scene = LogScene()
    scene.topic.write_piece(b"0" * 10, b"a", 0, 2)
    await scene.log.end.refresh()
    scene.topic.write_piece(b"1" * 10, b"a", 1, 2)
    await scene.log.end.refresh()
    assert scene.log.end_offset == 2
    whole: list[tuple[int, bytes | None]] = []
    offset = 0
    async with asyncio.timeout(5):
        while offset < 2:
            found = scene.log.reader.read(offset, 1 << 20)
            if found is None:
                scene.log.reader.prefetch(offset)
                await let_callbacks_run()
                continue
            for chunk in found[0]:
                whole.extend(records(bytes(chunk)))
                offset = max(offset, *(header.last_offset + 1 for _, header in iter_headers(bytes(chunk))))
    assert whole == [(1, b"0" * 10 + b"1" * 10)]
    await scene.log.close()
