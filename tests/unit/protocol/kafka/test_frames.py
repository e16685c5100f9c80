"""Frames come out whole, however the stream is cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.kafka.frames import DIRECT_READ_BYTES, FIRST_ALLOCATION_BYTES, NOT_A_FRAME, FrameReceiver

SHARED_BYTES = 1_000
MAX_BYTES = 3 * DIRECT_READ_BYTES


def frame(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(index % 251 for index in range(size))


def fed(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Read as a transport does, at most so many bytes each time; another receiver uses the same buffer in between."""
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
