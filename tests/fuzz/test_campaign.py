"""The campaign itself: it finds planted defects, is the same for the same seed, and follows new outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fuzz.campaign import MAX_GROWTH_BYTES, Campaign, Result, quiet
from tests.fuzz.target import Check, Target

SEED = b"whole input"


def found(check: Check, inputs: int = 3_000, seed: int = 1) -> Result:
    with quiet():
        return Campaign(Target("planted", lambda random: [SEED], check), seed).run(inputs)


def _fails(data: bytes) -> str:
    if data[:1] == b"v":
        raise IndexError("an error that nobody declared")
    return "fine"


class _OnlyOnce:
    """Wrong for one input, the first changed one."""

    def __init__(self, fault: Callable[[], None]) -> None:
        self._fault = fault
        self._data: bytes | None = None

    def __call__(self, data: bytes) -> str:
        if data != SEED and self._data in {None, data}:
            self._data = data
            self._fault()
        return "fine"


def _work_long() -> None:
    end = time.thread_time() + 0.15
    while time.thread_time() < end:
        pass


def _take_memory() -> None:
    bytearray(b"x") * (MAX_GROWTH_BYTES + (8 << 20))


def test_what_is_right_is_not_found() -> None:
    assert not found(lambda data: "fine").findings


@pytest.mark.parametrize(
    ("check", "what"),
    [(_fails, "nobody declared"), (_OnlyOnce(_take_memory), "memory grew"), (_OnlyOnce(_work_long), "s of CPU")],
)
def test_what_is_planted_is_found(check: Check, what: str) -> None:
    assert what in " ".join(finding.what for finding in found(check).findings)


def test_the_same_seed_gives_the_same_inputs() -> None:
    def seen(seed: int) -> list[bytes]:
        inputs: list[bytes] = []

        def check(data: bytes) -> str:
            inputs.append(data)
            return "fine"

        found(check, 50, seed)
        return inputs

    assert seen(1) == seen(1) != seen(2)


def test_inputs_with_new_outcomes_lead_on() -> None:
    """Two bytes that must be right one after the other: never found together."""

    def check(data: bytes) -> str:
        right = next((at for at, byte in enumerate(b"\x81\x42") if data[at : at + 1] != bytes([byte])), 2)
        return "abc"[right]

    assert found(check, 60_000).outcomes == 3
