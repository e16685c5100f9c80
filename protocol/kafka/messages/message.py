"""Base classes of all requests and responses."""

from __future__ import annotations

from typing import ClassVar


class Message:
    """A request or a response of any version: fields that its version does not have keep their default.

    An id of zeros is None, and so is a struct that is not sent.
    """

    __slots__ = ()
    API_KEY: ClassVar[int]


class Throttled(Message):
    """A response with a throttle time, for which its client has to wait (KIP-219)."""

    __slots__ = ("throttle_time_ms",)
    throttle_time_ms: int
