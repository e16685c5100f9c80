"""The inputs of a decoder, and the check of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Check = Callable[[bytes], str]
"""Decodes an input and returns the outcome: the text of a declared error, or any other word. The campaign keeps inputs
with new outcomes. Raises any other exception, also AssertionError, when the decoder is wrong."""

Repair = Callable[[bytearray], None]
"""Corrects the checksum of a damaged input, in place."""


@dataclass(frozen=True)
class Target:
    name: str
    seeds: Callable[[Random], Sequence[bytes]]
    """Valid inputs."""
    check: Check
    repair: Repair | None = None


def reason(error: Exception) -> str:
    """The outcome of a refused input."""
    return f"{type(error).__name__}: {error}"
