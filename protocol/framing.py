"""Cuts a byte stream into frames, as Kafka and Pulsar have them: a length (big-endian int32), then so many bytes."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

LENGTH_BYTES = 4
DIRECT_READ_BYTES = 32 * 1024
"""A frame with more bytes to come than this is read straight into its own buffer. Others are read with what follows."""
FIRST_ALLOCATION_BYTES = 4 * 1024
"""A client's frame gets a buffer that doubles with what came of it: a length alone takes hardly any memory."""
WHOLE_FROM = 8
"""A small frame gets its whole buffer when this part of it has come, so that it is copied once."""
MAX_FRAMES = 1_024
"""The number of frames that are cut at once, where a limit is wanted. A frame of a few bytes takes a hundred."""
NOT_A_FRAME = bytearray()
"""Stands for a length that is not allowed: behind it, the stream means nothing."""
_LENGTH = Struct(">i")


class Part(NamedTuple):
    """A part of a frame."""

    number: int
    """No other frame of the stream has it."""
    size_bytes: int
    whole_bytes: int


class FrameReceiver:
    """`get_buffer` and `buffer_updated` in the shape of asyncio.BufferedProtocol.

    Many receivers may read into the same `shared` buffer: it is emptied before anyone reads again, and only what is
    left of an incomplete frame is kept here.
    """

    __slots__ = (
        "_begun", "_filled", "_first_allocation_bytes", "_frame", "_is_direct", "_length", "_max_frames", "_rest",
        "_shared", "has_uncut", "max_frame_bytes",
    )  # fmt: skip

    def __init__(
        self,
        shared: memoryview,
        max_frame_bytes: int,
        first_allocation_bytes: int = FIRST_ALLOCATION_BYTES,
        max_frames: int | None = None,
    ) -> None:
        """``first_allocation_bytes``: what a frame may take at once because its length says so.

        With ``max_frames``, what follows so many frames is kept as it came. It is cut by `cut` with no data, which must
        come before more is read.
        """
        self.max_frame_bytes = max_frame_bytes
        self._max_frames = max_frames
        self.has_uncut = False
        """There may be whole frames that have to be cut."""
        self._shared = shared
        self._first_allocation_bytes = first_allocation_bytes
        self._rest = b""
        """A part of a length, or what has to be cut."""
        self._frame: bytearray | None = None
        """The buffer of an incomplete frame, of which `_filled` bytes have come."""
        self._filled = self._length = self._begun = 0
        """`_begun`: the number of frames that have come in parts."""
        self._is_direct = False
        """The transport reads into the frame's own buffer."""

    @property
    def mid_frame(self) -> bool:
        """A part of a frame has come."""
        return self._frame is not None or bool(self._rest)

    @property
    def part(self) -> Part | None:
        """What has come of an incomplete frame, if its length is known."""
        return None if self._frame is None else Part(self._begun, self._filled, self._length)

    def get_buffer(self) -> memoryview:
        if self._is_direct and self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._shared

    def buffer_updated(self, nbytes: int) -> list[bytearray]:
        """The frames that `nbytes` more make whole, without their lengths; they belong to the caller."""
        if not self._is_direct or self._frame is None:
            return self.cut(self._shared[:nbytes])
        self._filled += nbytes
        if self._filled < self._length:
            if self._filled == len(self._frame):
                self._frame = _grown(self._frame, self._length)
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def cut(self, data: memoryview) -> list[bytearray]:
        """The same of bytes that were read elsewhere."""
        frames: list[bytearray] = []
        if self._frame is not None:
            data = self._complete(self._frame, data, frames)
        elif self._rest:
            data = memoryview(self._rest + data)
            self._rest = b""
        position, end, length_at = 0, len(data), _LENGTH.unpack_from
        self.has_uncut = False
        while end - position >= LENGTH_BYTES:
            if len(frames) == self._max_frames:
                self.has_uncut = True
                break
            (length,) = length_at(data, position)
            if not 0 < length <= self.max_frame_bytes:
                return [*frames, NOT_A_FRAME]
            start = position + LENGTH_BYTES
            if end - start < length:
                self._begin(length, data[start:])
                return frames
            frames.append(bytearray(data[start : start + length]))
            position = start + length
        if position < end:
            self._rest = bytes(data[position:])
        return frames

    def clear(self) -> None:
        """The stream has ended: give back what is kept of an incomplete frame."""
        self._rest, self._frame, self.has_uncut = b"", None, False

    def _begin(self, length: int, head: memoryview) -> None:
        """Keep the head of an incomplete frame."""
        filled = len(head)
        self._is_direct = length - filled > DIRECT_READ_BYTES
        grown = 2 if self._is_direct else WHOLE_FROM
        size = min(length, max(grown * filled, self._first_allocation_bytes))
        self._length, self._filled, self._frame = length, filled, bytearray(size)
        self._begun += 1
        memoryview(self._frame)[:filled] = head  # a bytearray would copy the head twice

    def _complete(self, frame: bytearray, data: memoryview, frames: list[bytearray]) -> memoryview:
        """Copy the rest of a frame into its buffer. Returns the data that follows it."""
        taken, filled = min(self._length - self._filled, len(data)), self._filled
        if filled + taken > len(frame):
            frame = self._frame = _grown(frame, self._length, filled + taken)
        memoryview(frame)[filled : filled + taken] = data[:taken]
        self._filled += taken
        if self._filled == self._length:
            self._frame = None
            frames.append(frame)
        return data[taken:]


def _grown(frame: bytearray, length: int, least: int = 0) -> bytearray:
    """A copy: who reads may still hold the buffer, and one that is held cannot grow."""
    grown = bytearray(min(length, max(2 * len(frame), least)))
    grown[: len(frame)] = frame
    return grown
