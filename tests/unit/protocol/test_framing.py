"""Frames are complete, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.framing import DIRECT_READ_BYTES, FIRST_ALLOCATION_BYTES, NOT_A_FRAME, FrameReceiver

SHARED_BYTES = 1_000
MAX_BYTES = 3 * DIRECT_READ_BYTES


def frame(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(index % 251 for index in range(size))


def fed(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Read like a transport, at most this number of bytes each time; another receiver uses the same buffer in between.
    """
    shared = memoryview(bytearray(SHARED_BYTES))
    receiver, frames, position = FrameReceiver(shared, MAX_BYTES), [], 0
    for cut in [*cuts, *[SHARED_BYTES] * (len(stream) // 2 + 1)]:
        buffer = receiver.get_buffer()
        part = stream[position : position + min(cut, len(buffer))]
        if not part:
            break
        buffer[: len(part)] = part
        frames += [bytes(each) for each in receiver.buffer_updated(len(part))]
        shared[:] = b"?" * SHARED_BYTES
        position += len(part)
    return frames


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 7, 500, 996, 997, DIRECT_READ_BYTES, DIRECT_READ_BYTES + 1_500, MAX_BYTES])),
    cuts=st.lists(st.integers(1, SHARED_BYTES)),
)
def test_frames_may_be_cut_anywhere(sizes: list[int], cuts: list[int]) -> None:
    stream = b"".join(map(frame, sizes))
    assert fed(stream, cuts) == [frame(size)[4:] for size in sizes]


def test_a_length_that_is_not_allowed() -> None:
    for length in (0, -1, MAX_BYTES + 1):
        stream = frame(3) + length.to_bytes(4, "big", signed=True) + frame(2)
        assert fed(stream, []) == [frame(3)[4:], bytes(NOT_A_FRAME)]


def test_a_length_alone_takes_no_memory() -> None:
    receiver = FrameReceiver(memoryview(bytearray(1_000)), 100 * FIRST_ALLOCATION_BYTES)
    length = 100 * FIRST_ALLOCATION_BYTES
    assert receiver.cut(memoryview(length.to_bytes(4, "big") + b"x")) == []
    received = 1
    while received < length:
        room = receiver.get_buffer()
        assert len(room) <= max(FIRST_ALLOCATION_BYTES, received), "no more than has come"
        frames = receiver.buffer_updated(len(room))
        received += len(room)
    assert [len(frame) for frame in frames] == [length]


@pytest.mark.parametrize("length", [2, FIRST_ALLOCATION_BYTES + 1, DIRECT_READ_BYTES, MAX_BYTES])
def test_the_first_byte_of_a_frame_takes_few_of_them(length: int) -> None:
    """Thousands of connections may send no more than that, before a login, too."""
    shared = memoryview(bytearray(SHARED_BYTES))
    receiver = FrameReceiver(shared, MAX_BYTES)
    receiver.cut(memoryview(length.to_bytes(4, "big") + b"x"))
    assert receiver._frame is not None
    assert len(receiver._frame) <= FIRST_ALLOCATION_BYTES


class Stream:
    """The frames of one of several receivers: those returned, and copies made at that time."""

    def __init__(self, shared: memoryview) -> None:
        self.frames: list[bytearray] = []
        self.copies: list[bytes] = []
        self.receiver = FrameReceiver(shared, 10_000, 10_000)

    def feed(self, data: bytes, most: int = 10_000) -> None:
        while data:
            buffer = self.receiver.get_buffer()
            count = min(len(buffer), len(data), most)
            assert count > 0
            buffer[:count] = data[:count]
            found = self.receiver.buffer_updated(count)
            self.frames += found
            self.copies += map(bytes, found)
            data = data[count:]


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in frames)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=10), st.lists(st.integers(1, 200), min_size=1))
def test_any_cut_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    sink = Stream(memoryview(bytearray(64)))
    data = stream(frames)
    position = 0
    while position < len(data):
        for cut in cuts:
            sink.feed(data[position : position + cut], cut)
            position += cut
    assert sink.copies == frames


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 100)), min_size=1, max_size=60))
def test_two_streams_share_a_buffer(turns: list[tuple[int, int]]) -> None:
    shared = memoryview(bytearray(64))
    frames = [[bytes([n]) * size for size in (4, 90, 5, 63, 64, 65, 4)] * 20 for n in (1, 2)]
    sinks = [Stream(shared), Stream(shared)]
    rest = [stream(frames[0]), stream(frames[1])]
    for which, count in [*turns, (0, 10**6), (1, 10**6)]:
        sinks[which].feed(rest[which][:count], 7 if count < 50 else 10_000)
        rest[which] = rest[which][count:]
    assert [sink.copies for sink in sinks] == frames
    assert [[*map(bytes, sink.frames)] for sink in sinks] == frames


def test_frames_belong_to_the_caller() -> None:
    sink = Stream(memoryview(bytearray(64)))
    large = bytes(range(200))
    sink.feed(stream([large, b"next", large]))
    assert sink.frames == [large, b"next", large]
    sink.frames[0][0] = 255
    assert sink.frames[2][0] == 0


@pytest.mark.parametrize("size", [0, 10_001, 0xFFFFFFFF])
def test_impossible_sizes(size: int) -> None:
    sink = Stream(memoryview(bytearray(64)))
    sink.feed(size.to_bytes(4, "big"))
    assert sink.frames == [NOT_A_FRAME]


def test_a_frame_of_somebody_trusted_is_allocated_at_once() -> None:
    receiver = FrameReceiver(memoryview(bytearray(64)), 1 << 20, 1 << 20)
    receiver.cut(memoryview((1 << 20).to_bytes(4, "big") + b"x"))
    assert len(receiver.get_buffer()) == (1 << 20) - 1
