"""What the system knows of a connection that is not read at present: the event loop tells nothing of it then."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

from gateway.transport.carried import UNDECRYPTED_BYTES

CLOSE, CLOSE_WAIT = 7, 8
"""States of TCP in Linux: reset, and closed by the other side."""
UNSUPPORTED = (AttributeError, OSError, ValueError)
"""Raised on systems without TCP_INFO, and for a connection that is already closed."""
_INT = struct.Struct("=i")


def has_ended(transport: asyncio.Transport) -> bool:
    """The client sends nothing more: its end is behind what it has sent before. False also if it is not known."""
    try:
        [state] = _socket(transport).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except UNSUPPORTED:
        return False
    return state in {CLOSE, CLOSE_WAIT}


def sends_nothing(transport: asyncio.Transport) -> bool:
    """Nothing has arrived that was not read. False also if it is not known."""
    return unread_bytes(transport) == 0


def unread_bytes(transport: asyncio.Transport) -> int | None:
    """What has arrived and was not read: at least so much. None if it is not known."""
    undecrypted: int = transport.get_extra_info(UNDECRYPTED_BYTES, 0)
    try:
        unread = fcntl.ioctl(_socket(transport).fileno(), termios.FIONREAD, _INT.pack(0))
    except UNSUPPORTED:
        return undecrypted or None
    return undecrypted + int(_INT.unpack(unread)[0])


def _socket(transport: asyncio.Transport) -> socket.socket:
    """Raises AttributeError when it is used after the end of the connection."""
    found: socket.socket = transport.get_extra_info("socket")
    return found
