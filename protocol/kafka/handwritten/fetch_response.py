"""The only field of a Fetch response that a gateway reads when it forwards the response.

Layout (https://kafka.apache.org/protocol, Fetch API), after the correlation id:

    v7     throttle time int32, error int16, session id int32
    v12    flexible: tagged fields of the header first
"""

from __future__ import annotations

import struct

from protocol.kafka.fields import skip_tagged_fields

FIRST_SESSION_VERSION = 7
FIRST_FLEXIBLE_VERSION = 12
NO_SESSION = 0
_CORRELATION_ID_BYTES = 4
_SESSION = struct.Struct(">ihi")


def session_id(version: int, frame: memoryview) -> int:
    """The session id in a frame without its length; 0 if it has none. Raises ValueError for an invalid frame."""
    if version < FIRST_SESSION_VERSION:
        return NO_SESSION
    try:
        position = _CORRELATION_ID_BYTES
        if version >= FIRST_FLEXIBLE_VERSION:
            position = skip_tagged_fields(frame, position)
        _throttle_ms, _error, number = _SESSION.unpack_from(frame, position)
    except (struct.error, IndexError) as error:
        raise ValueError("the answer is cut off") from error
    return int(number)
