"""Password guessing is slow, and does not slow other clients."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.login import failed_logins
from gateway.login.failed_logins import FAILURES_PER_S, FailedLogins
from gateway.security.quota_rates import SAMPLES
from tests.unit.gateway.login.login_scene import PASSWORD, USER, Scene

HERE, ELSEWHERE = "192.0.2.7", "192.0.2.8"
AT_ONCE = int(SAMPLES * FAILURES_PER_S)


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        patch.setattr(failed_logins, "_now_ms", lambda: self.now_ms)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 300)), max_size=30))
def test_failures_of_an_address_have_a_bound(attempts: list[tuple[int, int]]) -> None:
    """Pauses (ms), and the number of connections that then begin a login at the same time. All of them fail."""
    with pytest.MonkeyPatch.context() as patch:
        clock, failures, total, most = Clock(patch), FailedLogins(), 0, 0
        for pause_ms, connections in attempts:
            clock.now_ms += pause_ms
            if failures.wait_s(HERE):
                continue
            most = max(most, connections)
            for _ in range(connections):
                failures.count(HERE)
            total += connections
            assert total <= AT_ONCE + clock.now_ms / 1_000 * FAILURES_PER_S + most


def test_failed_logins_one_after_the_other_are_not_delayed(clock: Clock) -> None:
    failures = FailedLogins()
    for _ in range(10 * AT_ONCE):
        clock.now_ms += failed_logins.FAILURE_DELAY_S * 1_000
        failures.count(HERE)
        assert failures.wait_s(HERE) == 0


@pytest.mark.parametrize(
    ("host", "shares"),
    [
        (HERE, True), (f"::ffff:{HERE}", True), (ELSEWHERE, False), ("2001:db8::1", False), ("unknown", False),
    ],
)  # fmt: skip
def test_only_the_address_waits(clock: Clock, host: str, *, shares: bool) -> None:
    failures = FailedLogins()
    for _ in range(AT_ONCE + 10):
        failures.count(HERE)
    assert failures.wait_s(HERE) == 1
    assert bool(failures.wait_s(host)) == shares


def test_the_addresses_of_one_site_are_one(clock: Clock) -> None:
    failures = FailedLogins()
    for number in range(AT_ONCE + 10):
        failures.count(f"2001:db8:1:2::{number:x}")
    assert failures.wait_s("2001:db8:1:2:ffff::1") == 1
    assert failures.wait_s("2001:db8:1:3::1") == 0
    assert len(failures._buckets) == 1


def test_many_addresses_take_little_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "MAX_ADDRESSES", 3)
    failures = FailedLogins()
    for _ in range(AT_ONCE + 10):
        failures.count(HERE)
    for number in range(100):
        failures.count(f"198.51.100.{number}")
        failures.count(HERE)
    assert len(failures._buckets) == 3 and failures.wait_s(HERE) > 0


async def test_a_login_waits_before_its_password_is_looked_at(clock: Clock) -> None:
    """And a right password is accepted then: no user is locked out."""
    scene = Scene()
    for _ in range(AT_ONCE + 1):
        scene.logins.failures.count(HERE)
    trying = asyncio.create_task(scene.log_in(USER, PASSWORD))
    await asyncio.sleep(0)
    assert not trying.done() and scene.session._exchange is None
    clock.now_ms += failed_logins.FAILURE_DELAY_S * 1_000
    assert (await asyncio.wait_for(trying, 20))["error_code"] == 0
    assert scene.logins.failures.wait_s(HERE) == 0


async def test_failed_logins_are_counted_by_address() -> None:
    scene = Scene()
    assert (await scene.log_in(USER, "wrong"))["error_code"] != 0
    (bucket,) = scene.logins.failures._buckets.values()
    assert bucket._tokens is not None and bucket._tokens < AT_ONCE
    good = Scene()
    assert (await good.log_in())["error_code"] == 0
    assert not good.logins.failures._buckets
