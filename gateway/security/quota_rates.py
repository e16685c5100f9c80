"""Measures recent use, and how long a client above its quota has to wait: Kafka's Rate and TokenBucket (KIP-13)."""

from __future__ import annotations

import math
from collections import deque

WINDOW_MS = 1_000
SAMPLES = 11
"""Kafka's `quota.window.num`: ten full windows and the current one."""
_FULL_WINDOWS = SAMPLES - 1
_LEAST_ELAPSED_S = _FULL_WINDOWS * WINDOW_MS / 1_000
"""Rates are computed over at least this time."""
MAX_THROTTLE_MS = 2**31 - 1
"""Responses have no room for a longer time. A very low quota, which keeps a client out, gives any time."""


class Rate:
    """The amount per second that was recorded in the last samples."""

    __slots__ = ("__weakref__", "_before", "_ends_ms", "_older", "_since_ms", "_total")

    def __init__(self) -> None:
        self._older: deque[tuple[float, float]] = deque(maxlen=_FULL_WINDOWS)
        """The start (ms) and the sum of each sample before the newest one, oldest first."""
        self._before = 0.0
        """Their sum."""
        self._since_ms = -math.inf
        """The start of the newest sample; minus infinity if there is none."""
        self._ends_ms = -math.inf
        """From this time on, an amount needs a new sample."""
        self._total = 0.0
        """The sum of all samples. The oldest ones may have expired."""

    def record(self, amount: float, now_ms: float) -> None:
        if now_ms >= self._ends_ms:
            self._begin_sample(now_ms)
        self._total += amount

    def charge(self, amount: float, bound: float, now_ms: float) -> int:
        """`record` and `throttle_time_ms` in one call, because each request needs both."""
        is_free = self._total + amount <= free_amount(bound)
        self.record(amount, now_ms)
        return 0 if is_free else self.throttle_time_ms(bound, now_ms)

    def used(self, now_ms: float) -> float:
        """The sum of the samples that have not expired."""
        self._forget(now_ms)
        return self._total

    def throttle_time_ms(self, bound: float, now_ms: float) -> int:
        """Milliseconds until the rate is down to the bound; 0 if it is not above the bound."""
        used = self.used(now_ms)
        oldest_ms = self._older[0][0] if self._older else self._since_ms
        if oldest_ms == -math.inf:
            return 0
        elapsed_ms = now_ms - oldest_ms
        elapsed_ms += max(0, _FULL_WINDOWS - elapsed_ms // WINDOW_MS) * WINDOW_MS
        rate = used * 1_000 / elapsed_ms
        return _whole_ms((rate - bound) / bound * elapsed_ms) if rate > bound else 0

    def _begin_sample(self, now_ms: float) -> None:
        if self._since_ms > -math.inf:
            self._older.append((self._since_ms, self._total - self._before))
        self._since_ms = now_ms
        self._ends_ms = now_ms + WINDOW_MS
        self._add_up(0.0)

    def _forget(self, now_ms: float) -> None:
        expired_ms = now_ms - SAMPLES * WINDOW_MS
        if self._older and self._older[0][0] <= expired_ms:
            newest = self._total - self._before
            while self._older and self._older[0][0] <= expired_ms:
                self._older.popleft()
            self._add_up(newest)
        if self._since_ms <= expired_ms:
            self._since_ms = self._ends_ms = -math.inf
            self._add_up(0.0)

    def _add_up(self, newest: float) -> None:
        """Sum up again, so that rounding errors do not accumulate."""
        self._before = sum(amount for _, amount in self._older)
        self._total = self._before + newest


def _whole_ms(time_ms: float) -> int:
    return round(min(MAX_THROTTLE_MS, time_ms))


def free_amount(bound: float) -> float:
    """The amount in all samples up to which the throttle time is certainly 0."""
    return bound * _LEAST_ELAPSED_S


class RatePair:
    """Two rates to which the same requests are charged, in one step because each request needs both."""

    __slots__ = ("_first", "_first_free", "_second", "_second_free")

    def __init__(self, first: Rate, first_free: float, second: Rate, second_free: float) -> None:
        """`first_free` and `second_free` are the `free_amount` of each bound."""
        self._first, self._first_free = first, first_free
        self._second, self._second_free = second, second_free

    def has_room(self, first: float, second: float) -> bool:
        """Whether both throttle times certainly stay 0 with these amounts."""
        return self._first._total + first <= self._first_free and self._second._total + second <= self._second_free

    def record_within(self, first: float, second: float, now_ms: float) -> bool:
        """Record the amounts if there is room for both. If it returns False, nothing was recorded."""
        one, other = self._first, self._second
        one_total, other_total = one._total + first, other._total + second
        if one_total > self._first_free or other_total > self._second_free:
            return False
        if now_ms >= one._ends_ms or now_ms >= other._ends_ms:
            self.record(first, second, now_ms)
        else:
            one._total, other._total = one_total, other_total
        return True

    def record(self, first: float, second: float, now_ms: float) -> None:
        self._first.record(first, now_ms)
        self._second.record(second, now_ms)


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
        return _whole_ms(max(0.0, -self._refilled(rate, now_ms)) * 1_000 / rate)

    def _refilled(self, rate: float, now_ms: float) -> float:
        most = SAMPLES * rate
        if self._tokens is not None:
            self._tokens = min(most, self._tokens + (now_ms - self._at_ms) / 1_000 * rate)
        self._at_ms = now_ms
        return most if self._tokens is None else self._tokens
