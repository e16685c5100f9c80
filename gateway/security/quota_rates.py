"""Measures recent use, and how long a client above its quota has to wait: Kafka's Rate and TokenBucket (KIP-13)."""

from __future__ import annotations

import math
from collections import deque

WINDOW_MS = 1_000
SAMPLES = 11
"""Kafka's `quota.window.num`: ten full windows and the current one."""
_FULL_WINDOWS = SAMPLES - 1
LEAST_ELAPSED_S = _FULL_WINDOWS * WINDOW_MS / 1_000
"""Rates are computed over at least this time."""


class Rate:
    """The amount per second that was recorded in the last samples."""

    __slots__ = ("__weakref__", "_newest", "_samples", "_total")

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque(maxlen=SAMPLES)
        """The start (ms) and the sum of each sample, oldest first."""
        self._newest = [-math.inf, 0.0]
        self._total = 0.0
        """The sum of all samples. The oldest ones may have expired."""

    def record(self, amount: float, now_ms: float) -> None:
        if now_ms - self._newest[0] >= WINDOW_MS:
            self._begin_sample(now_ms)
        self._newest[1] += amount
        self._total += amount

    def charge(self, amount: float, bound: float, now_ms: float) -> int:
        """`record` and `throttle_time_ms` in one call, because each request needs both."""
        if self.record_within(amount, bound, now_ms):
            return 0
        self.record(amount, now_ms)
        return self.throttle_time_ms(bound, now_ms)

    def has_room(self, amount: float, bound: float) -> bool:
        """Whether the throttle time certainly stays 0 with this amount."""
        return self._total + amount <= bound * LEAST_ELAPSED_S

    def record_within(self, amount: float, bound: float, now_ms: float) -> bool:
        """Record the amount if the throttle time certainly stays 0. If it returns False, nothing was recorded."""
        if self._total + amount > bound * LEAST_ELAPSED_S:
            return False
        if now_ms - self._newest[0] >= WINDOW_MS:
            self._begin_sample(now_ms)
        self._newest[1] += amount
        self._total += amount
        return True

    def throttle_time_ms(self, bound: float, now_ms: float) -> int:
        """Milliseconds until the rate is down to the bound; 0 if it is not above the bound."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        elapsed_ms = now_ms - self._samples[0][0]
        elapsed_ms += max(0, _FULL_WINDOWS - elapsed_ms // WINDOW_MS) * WINDOW_MS
        rate = self._total * 1_000 / elapsed_ms
        return round((rate - bound) / bound * elapsed_ms) if rate > bound else 0

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
        """Sum up again, so that rounding errors do not accumulate."""
        self._total = sum(amount for _, amount in self._samples)


class TokenBucket:
    """Tokens arrive at a rate; the bucket holds at most those of eleven seconds. `take` may put it into debt."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        """None is a full bucket, at any rate."""
        self._at_ms = 0.0

    def is_empty(self, rate: float, now_ms: float) -> bool:
        return self._refilled(rate, now_ms) < 0

    def take(self, tokens: float, rate: float, now_ms: float) -> None:
        self._tokens = self._refilled(rate, now_ms) - tokens

    def throttle_time_ms(self, rate: float, now_ms: float) -> int:
        """Milliseconds until the bucket is out of debt."""
        return round(max(0.0, -self._refilled(rate, now_ms)) * 1_000 / rate)

    def _refilled(self, rate: float, now_ms: float) -> float:
        most = SAMPLES * rate
        if self._tokens is not None:
            self._tokens = min(most, self._tokens + (now_ms - self._at_ms) / 1_000 * rate)
        self._at_ms = now_ms
        return most if self._tokens is None else self._tokens
