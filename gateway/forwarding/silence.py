"""Whether the machine of another gateway acknowledges what it is sent.

TCP_USER_TIMEOUT does not tell: it also ends a connection whose other side acknowledges everything, but has had no room
to read for that time. A gateway whose memory for requests is full, or that waits for Pulsar, is not lost.
"""

from __future__ import annotations

import contextlib
import socket
import struct

NOT_POSSIBLE = (AttributeError, OSError, ValueError)
"""Raised on systems without these options, and for a connection that is already closed."""
TCP_INFO_BYTES = 60
LAST_ACK_AT = 56
"""Where Linux's `struct tcp_info` has the milliseconds since the last acknowledgement of any kind."""
UNACKNOWLEDGED = 2
"""So many repetitions in a row prove silence: a single one may be on its way."""
KEEPALIVE_AFTER_S, KEEPALIVE_EVERY_S, KEEPALIVES = 2, 1, 3


def ask_for_signs_of_life(connection: socket.socket) -> None:
    """While nothing is sent, the system asks. It ends the connection after 5 s without an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(AttributeError):  # not every system has these options
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVES)


def is_silent(connection: socket.socket, silence_ms: int) -> bool:
    """Data, or the question for room, was sent several times, and nothing was acknowledged for this time."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except NOT_POSSIBLE:
        return False
    if len(info) < TCP_INFO_BYTES:
        return False
    repetitions, questions = info[2], info[3]
    (last_ack_ms,) = struct.unpack_from("=I", info, LAST_ACK_AT)
    return bool(last_ack_ms >= silence_ms and max(repetitions, questions) >= UNACKNOWLEDGED)


def bound_sending(connection: socket.socket, time_ms: int) -> None:
    """The connection is being closed: what the other side does not take in this time is dropped."""
    with contextlib.suppress(*NOT_POSSIBLE):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, time_ms)
