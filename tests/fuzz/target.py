"""What a decoder is tried with, and how it is told right from wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Check = Callable[[bytes], str]
"""Decodes an input and says what came of it: the text of a declared error, or any other word. The campaign keeps inputs
with new outcomes. Raises anything else, AssertionError too, when the decoder is wrong."""

Repair = Callable[[bytearray], None]
"""Makes a damaged input's checksum right, in place."""


@dataclass(frozen=True)
class Target:
    name: str
    seeds: Callable[[Random], Sequence[bytes]]
    """Whole inputs."""
    check: Check
    repair: Repair | None = None


def reason(error: Exception) -> str:
    """The outcome of an input that was refused."""
    return f"{type(error).__name__}: {error}"
