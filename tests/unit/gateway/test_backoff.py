"""Attempts, and the pauses between them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.backoff import Backoff, retried


class Attempts:
    """Fails this number of times; the clock is that of the pauses."""

    def __init__(self, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = failures
        self.pauses: list[float] = []
        self.now_s = 0.0
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s, raising=False)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    async def run(self) -> str:
        if self.failures == 0:
            return "done"
        self.failures -= 1
        raise OSError("not yet")


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.next_pause_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_pause_s() == 1


def test_pauses_may_be_equally_long() -> None:
    backoff = Backoff(3)
    assert [backoff.next_pause_s() for _ in range(3)] == [3, 3, 3]


def test_jitter_is_a_share_of_the_pause() -> None:
    backoff = Backoff(10, jitter=0.2)
    pauses = [backoff.next_pause_s() for _ in range(100)]
    assert 8 <= min(pauses) < 10 < max(pauses) <= 12


async def test_what_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(3, monkeypatch)
    assert await retried(attempts.run, lambda error: isinstance(error, OSError), Backoff(1, 2)) == "done"
    assert attempts.pauses == [1, 2, 2]


async def test_what_is_not_to_be_tried_again_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(3, monkeypatch)
    with pytest.raises(OSError, match="not yet"):
        await retried(attempts.run, lambda error: attempts.failures > 1, Backoff(1))
    assert attempts.pauses == [1]


async def test_attempts_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(100, monkeypatch)
    with pytest.raises(OSError, match="not yet"):
        await retried(attempts.run, lambda error: True, Backoff(1), within_s=5)
    assert attempts.pauses == [1] * 5
