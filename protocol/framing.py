"""Cuts a byte stream into frames, as Kafka and Pulsar have them: a length (big-endian int32), then so many bytes."""

from __future__ import annotations

from struct import Struct

LENGTH_BYTES = 4
DIRECT_READ_BYTES = 32 * 1024
"""A frame with more bytes to come than this is read straight into its own buffer."""
FIRST_ALLOCATION_BYTES = 64 * 1024
"""A client's frame gets a buffer that grows with what came of it, by half each time: a length alone takes no memory."""
NOT_A_FRAME = bytearray()
"""Stands for a length that is not allowed: behind it, the stream means nothing."""


_LENGTH = Struct(">i")


class FrameReceiver:
    """`get_buffer` and `buffer_updated` in the shape of asyncio.BufferedProtocol.

    Many receivers may read into the same `shared` buffer: it is emptied before anyone reads again, and only what is
    left of an incomplete frame is kept here.
    """

    __slots__ = ("_filled", "_first_allocation_bytes", "_frame", "_length", "_rest", "_shared", "max_frame_bytes")

    def __init__(
        self, shared: memoryview, max_frame_bytes: int, first_allocation_bytes: int = FIRST_ALLOCATION_BYTES
    ) -> None:
        """``first_allocation_bytes``: what a frame may take at once because its length says so."""
        self.max_frame_bytes = max_frame_bytes
        self._shared = shared
        self._first_allocation_bytes = first_allocation_bytes
        self._rest = b""
        self._frame: bytearray | None = None
        self._filled = self._length = 0

    @property
    def mid_frame(self) -> bool:
        """A part of a frame has come."""
        return self._frame is not None or bool(self._rest)

    def get_buffer(self) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._shared

    def buffer_updated(self, nbytes: int) -> list[bytearray]:
        """The frames that `nbytes` more make whole, without their lengths; they belong to the caller."""
        if self._frame is None:
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
        if self._rest:
            data = memoryview(self._rest + data)
        frames: list[bytearray] = []
        position, end, length_at = 0, len(data), _LENGTH.unpack_from
        self._rest = b""
        while end - position >= LENGTH_BYTES:
            (length,) = length_at(data, position)
            if not 0 < length <= self.max_frame_bytes:
                return [*frames, NOT_A_FRAME]
            start = position + LENGTH_BYTES
            if end - start < length:
                if length - (end - start) > DIRECT_READ_BYTES:
                    self._begin(length, data[start:])
                    return frames
                break
            frames.append(bytearray(data[start : start + length]))
            position = start + length
        self._rest = bytes(data[position:])
        return frames

    def clear(self) -> None:
        """The stream has ended: give back what is kept of an incomplete frame."""
        self._rest, self._frame = b"", None

    def _begin(self, length: int, head: memoryview) -> None:
        self._length = length
        self._frame = bytearray(min(length, max(len(head) * 3 // 2, self._first_allocation_bytes)))
        self._filled = len(head)
        self._frame[: self._filled] = head


def _grown(frame: bytearray, length: int) -> bytearray:
    """A copy: who reads may still hold the buffer, and one that is held cannot grow."""
    grown = bytearray(min(length, len(frame) * 3 // 2))
    grown[: len(frame)] = frame
    return grown
