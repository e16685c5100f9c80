"""How much was used lately, and how long one waits who has used too much: Kafka's Rate and TokenBucket (KIP-13)."""

from __future__ import annotations

import math
from collections import deque

WINDOW_MS = 1_000
SAMPLES = 11
"""Kafka's `quota.window.num`: ten full windows and the present one."""
_FULL_WINDOWS = SAMPLES - 1
LEAST_ELAPSED_S = _FULL_WINDOWS * WINDOW_MS / 1_000
"""No rate is of a shorter time."""


class Rate:
    """Of what was recorded in the last samples, for each second."""

    __slots__ = ("_newest", "_samples", "_total")

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque(maxlen=SAMPLES)
        """Beginning (ms) and sum, oldest first."""
        self._newest = [-math.inf, 0.0]
        self._total = 0.0
        """Of all samples. The oldest may have to be forgotten."""

    def record(self, amount: float, now_ms: float) -> None:
        if now_ms - self._newest[0] >= WINDOW_MS:
            self._begin_sample(now_ms)
        self._newest[1] += amount
        self._total += amount

    def charge(self, amount: float, bound: float, now_ms: float) -> int:
        """Record it, and how long to wait for the bound: both are asked for with each request."""
        if now_ms - self._newest[0] >= WINDOW_MS:
            self._begin_sample(now_ms)
        self._newest[1] += amount
        self._total += amount
        return 0 if self._total <= bound * LEAST_ELAPSED_S else self.throttle_time_ms(bound, now_ms)

    def throttle_time_ms(self, bound: float, now_ms: float) -> int:
        """Until the rate is down to the bound; 0 if it is not above."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        elapsed_ms = now_ms - self._samples[0][0]
        elapsed_ms += max(0, _FULL_WINDOWS - elapsed_ms // WINDOW_MS) * WINDOW_MS
        rate = self._total * 1_000 / elapsed_ms
        return int((rate - bound) / bound * elapsed_ms) if rate > bound else 0

    def is_idle(self, now_ms: float) -> bool:
        self._forget(now_ms)
        return not self._samples

    def _begin_sample(self, now_ms: float) -> None:
        self._newest = [now_ms, 0.0]
        self._samples.append(self._newest)
        self._add_up()

    def _forget(self, now_ms: float) -> None:
        if self._samples and now_ms - self._samples[0][0] >= SAMPLES * WINDOW_MS:
            while self._samples and now_ms - self._samples[0][0] >= SAMPLES * WINDOW_MS:
                self._samples.popleft()
            self._add_up()

    def _add_up(self) -> None:
        """Anew, so that errors of rounding do not add up."""
        self._total = sum(amount for _, amount in self._samples)


class TokenBucket:
    """Tokens come at a rate, and are kept for eleven seconds. What is taken may be more than there are, once."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        """None is a full bucket, however large."""
        self._at_ms = 0.0

    def is_empty(self, rate: float, now_ms: float) -> bool:
        return self._refilled(rate, now_ms) < 0

    def take(self, tokens: float, rate: float, now_ms: float) -> None:
        self._tokens = self._refilled(rate, now_ms) - tokens

    def throttle_time_ms(self, rate: float, now_ms: float) -> int:
        """Until the bucket is not in debt."""
        return round(max(0.0, -self._refilled(rate, now_ms)) * 1_000 / rate)

    def is_idle(self, now_ms: float) -> bool:
        return self._tokens is None or now_ms - self._at_ms >= 3_600_000

    def _refilled(self, rate: float, now_ms: float) -> float:
        most = SAMPLES * rate
        if self._tokens is not None:
            self._tokens = min(most, self._tokens + (now_ms - self._at_ms) / 1_000 * rate)
        self._at_ms = now_ms
        return most if self._tokens is None else self._tokens
