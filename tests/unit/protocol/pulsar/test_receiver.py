"""A stream comes out as the same frames however it is cut into reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pulsar.frames import FrameError
from protocol.pulsar.receiver import FrameReceiver

SHARED_BYTES = 64


class Sink:
    """Collects frames, and copies of them at the time of the call."""

    def __init__(self, max_frame_bytes: int = 10_000) -> None:
        self.frames: list[bytes] = []
        self.private: list[memoryview] = []
        self.receiver = FrameReceiver(self.on_frame, bytearray(SHARED_BYTES), max_frame_bytes)

    def on_frame(self, frame: memoryview, private: bool) -> None:
        self.frames.append(bytes(frame))
        if private:
            self.private.append(frame)

    def feed(self, data: bytes, most: int = 10_000) -> None:
        while data:
            buffer = self.receiver.get_buffer()
            count = min(len(buffer), len(data), most)
            assert count > 0
            buffer[:count] = data[:count]
            self.receiver.buffer_updated(count)
            data = data[count:]


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(st.lists(st.binary(min_size=4, max_size=300), max_size=10), st.lists(st.integers(1, 200), min_size=1))
def test_any_cut_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    sink = Sink()
    data = stream(frames)
    position = 0
    while position < len(data):
        for cut in cuts:
            sink.feed(data[position : position + cut], cut)
            position += cut
    assert sink.frames == frames


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 100)), min_size=1, max_size=60))
def test_two_streams_share_a_buffer(turns: list[tuple[int, int]]) -> None:
    shared = bytearray(SHARED_BYTES)
    frames = [[bytes([n]) * size for size in (4, 90, 5, 63, 64, 65, 4)] * 20 for n in (1, 2)]
    sinks = [Sink(), Sink()]
    for sink in sinks:
        sink.receiver = FrameReceiver(sink.on_frame, shared, 10_000)
    rest = [stream(frames[0]), stream(frames[1])]
    for which, count in [*turns, (0, 10**6), (1, 10**6)]:
        sinks[which].feed(rest[which][:count], 7 if count < 50 else 10_000)
        rest[which] = rest[which][count:]
    assert [sink.frames for sink in sinks] == frames


def test_a_large_frame_is_private_and_stays() -> None:
    sink = Sink()
    large = bytes(range(200))
    sink.feed(stream([large, b"next", large]))
    assert [bytes(frame) for frame in sink.private] == [large, large]
    sink.private[0][0] = 255
    assert sink.private[1][0] == 0


@pytest.mark.parametrize("size", [0, 3, 10_001, 0xFFFFFFFF])
def test_impossible_sizes(size: int) -> None:
    with pytest.raises(FrameError):
        Sink().feed(size.to_bytes(4, "big"))
