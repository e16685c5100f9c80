"""Whether the machine of another gateway acknowledges what it is sent.

TCP_USER_TIMEOUT is no measure of it: it also ends a connection whose other side acknowledges everything, but has a full
receive window for that time. A gateway whose memory for requests is full, or that waits for Pulsar, is not lost.
"""

from __future__ import annotations

import contextlib
import socket
import struct

UNSUPPORTED = (AttributeError, OSError, ValueError)
"""Raised on systems without these options, and for a connection that is already closed."""
TCP_INFO_BYTES = 60
LAST_ACK_AT = 56
"""Where Linux's `struct tcp_info` has the milliseconds since the last acknowledgement of any kind."""
UNACKNOWLEDGED = 2
"""So many retransmissions in a row prove silence: the acknowledgement of a single one may be on its way."""
KEEPALIVE_AFTER_S, KEEPALIVE_EVERY_S, KEEPALIVES = 2, 1, 3


def enable_keepalive(connection: socket.socket) -> None:
    """TCP keepalive: the system ends an idle connection after 5 s without an acknowledgement."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(AttributeError):  # not every system has these options
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVES)


def is_silent(connection: socket.socket, silence_ms: int) -> bool:
    """Data, or a window probe, was sent several times, and nothing was acknowledged for this time."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except UNSUPPORTED:
        return False
    if len(info) < TCP_INFO_BYTES:
        return False
    retransmits, probes = info[2], info[3]
    (last_ack_ms,) = struct.unpack_from("=I", info, LAST_ACK_AT)
    return bool(last_ack_ms >= silence_ms and max(retransmits, probes) >= UNACKNOWLEDGED)


def limit_unacknowledged_time(connection: socket.socket, time_ms: int) -> None:
    """TCP_USER_TIMEOUT, for a connection that is being closed: what is not acknowledged in this time is dropped."""
    with contextlib.suppress(*UNSUPPORTED):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, time_ms)
