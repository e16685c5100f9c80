"""Cuts a byte stream into frames, reading into buffers that the caller fills.

Small frames are handed over where they lie in a shared buffer. A frame that does not end in it gets a buffer of its
own, into which the rest is read directly: a large payload is not copied again, and belongs to its receiver.
"""

from collections.abc import Callable
from struct import Struct

from protocol.pulsar.frames import FrameError

SHARED_BUFFER_BYTES = 128 * 1024
"""Size of the buffer small frames are read into. Frames longer than this always get their own."""

_SIZE = Struct(">I")


class FrameReceiver:
    """`get_buffer` and `buffer_updated` in the shape of asyncio.BufferedProtocol.

    `on_frame(frame, private)` gets each frame without its total_size. A private frame is the receiver's to keep and
    change; any other is valid only during the call.
    """

    def __init__(
        self, on_frame: Callable[[memoryview, bool], None], shared_buffer: bytearray, max_frame_bytes: int
    ) -> None:
        self._on_frame = on_frame
        self._shared = memoryview(shared_buffer)
        self.max_frame_bytes = max_frame_bytes
        self._prefix = b""  # up to 3 bytes of a size, kept while others use the shared buffer
        self._frame: memoryview | None = None
        self._filled = 0

    def get_buffer(self) -> memoryview:
        """Where to read the next bytes. `buffer_updated` must follow before anyone else's `get_buffer`."""
        if self._frame is not None:
            return self._frame[self._filled :]
        kept = len(self._prefix)
        if kept:
            self._shared[:kept] = self._prefix
        return self._shared[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        """Take `nbytes` read into the last buffer. Raises FrameError; the stream is then lost."""
        if self._frame is None:
            self._cut(len(self._prefix) + nbytes)
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_frame(frame, True)

    def _cut(self, end: int) -> None:
        shared = self._shared
        start = 0
        while end - start >= 4:
            size = self._checked_size(start)
            frame_end = start + 4 + size
            if frame_end > end:
                self._prefix = b""
                self._begin_private(size, shared[start + 4 : end])
                return
            self._on_frame(shared[start + 4 : frame_end], False)
            start = frame_end
        self._prefix = bytes(shared[start:end])

    def _checked_size(self, start: int) -> int:
        size: int = _SIZE.unpack_from(self._shared, start)[0]
        if not 4 <= size <= self.max_frame_bytes:
            raise FrameError(f"frame of {size} bytes, at most {self.max_frame_bytes} are allowed")
        return size

    def _begin_private(self, size: int, head: memoryview) -> None:
        self._frame = memoryview(bytearray(size))
        self._filled = len(head)
        self._frame[: self._filled] = head
