"""Rates and token buckets as Kafka computes them, and the quota of each client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.security.quota_entities import MUTATION_RATE, invalid_entity, invalid_quota
from gateway.security.quota_rates import MAX_THROTTLE_MS, Rate, RatePair, TokenBucket, free_amount
from gateway.security.quotas import Limit, Quotas
from gateway.security.records import QuotaKey, quota_record
from gateway.security.state import SecurityState

PRODUCER = "producer_byte_rate"


def test_a_rate_is_over_ten_seconds_at_least() -> None:
    """KIP-13: (observed - bound) / bound * window."""
    rate = Rate()
    rate.record(3_000, 0)
    assert rate.throttle_time_ms(100, 0) == 20_000
    assert rate.throttle_time_ms(300, 0) == 0


def test_what_is_old_counts_no_more() -> None:
    rate = Rate()
    for second in range(12):
        rate.record(100, second * 1_000)
    assert rate.throttle_time_ms(105, 11_500) == 0
    assert rate.throttle_time_ms(50, 11_500) > 0
    assert rate.throttle_time_ms(1, 30_000) == 0


def test_what_was_not_used_after_all_is_taken_back() -> None:
    rate = Rate()
    rate.record(5_000, 0)
    rate.record(-5_000, 10)
    assert rate.throttle_time_ms(1, 20) == 0


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000)), max_size=40), st.integers(1, 1_000))
def test_the_throttle_time_is_bounded_by_the_use(uses: list[tuple[int, int]], bound: int) -> None:
    rate, now_ms, total = Rate(), 0, 0
    for pause_ms, amount in uses:
        now_ms, total = now_ms + pause_ms, total + amount
        rate.record(amount, now_ms)
        assert 0 <= rate.throttle_time_ms(bound, now_ms) <= total * 1_000 / bound
    assert rate.throttle_time_ms(bound, now_ms + 11_000) == 0


AMOUNTS = st.integers(0, 400)


@given(st.lists(st.tuples(st.integers(0, 3_000), AMOUNTS, AMOUNTS), max_size=40))
def test_a_pair_records_both_amounts_or_none(uses: list[tuple[int, int, int]]) -> None:
    """As two rates do each for itself."""
    bounds, now_ms = (30, 50), 0
    rates, expected = (Rate(), Rate()), (Rate(), Rate())
    pair = RatePair(rates[0], free_amount(bounds[0]), rates[1], free_amount(bounds[1]))
    for pause_ms, first, second in uses:
        now_ms += pause_ms
        has_room = pair.has_room(first, second)
        assert pair.record_within(first, second, now_ms) == has_room
        if has_room:
            for rate, amount in zip(expected, (first, second), strict=True):
                rate.record(amount, now_ms)
        for rate, other, bound in zip(rates, expected, bounds, strict=True):
            assert not rate.throttle_time_ms(bound, now_ms)
            assert rate.used(now_ms) == other.used(now_ms)


def test_a_bucket_is_full_at_first_and_goes_into_debt_once() -> None:
    bucket = TokenBucket()
    assert not bucket.is_empty(2, 0)
    bucket.take(30, 2, 0)
    assert bucket.is_empty(2, 0) and bucket.throttle_time_ms(2, 0) == 4_000
    assert bucket.is_empty(2, 3_000) and not bucket.is_empty(2, 4_000)
    assert bucket.throttle_time_ms(2, 4_000) == 0


@pytest.mark.parametrize("bound", [1, 1e-9, 5e-324])
def test_a_response_has_room_for_any_throttle_time(bound: float) -> None:
    """Also of a quota that keeps a client out."""
    rate, bucket = Rate(), TokenBucket()
    bucket.take(10**9, bound, 0)
    assert 0 < rate.charge(10**9, bound, 0) <= MAX_THROTTLE_MS
    assert 0 < bucket.throttle_time_ms(bound, 0) <= MAX_THROTTLE_MS


LEVELS: list[dict[str, str | None]] = [
    {"user": "u", "client-id": "c"}, {"user": "u", "client-id": None}, {"user": "u"}, {"user": None, "client-id": "c"},
    {"user": None, "client-id": None}, {"user": None}, {"client-id": "c"}, {"client-id": None},
]  # fmt: skip
SHARERS = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


@given(st.sets(st.integers(0, len(LEVELS) - 1)))
def test_the_nearest_quota_counts(present: set[int]) -> None:
    state = SecurityState()
    for level in present:
        state.apply(quota_record(QuotaKey(frozenset(LEVELS[level].items()), PRODUCER), level + 1.0))
    first = min(present, default=None)
    expected = None if first is None else Limit(first + 1.0, SHARERS[first])
    limits = Quotas(state).account("u", "c").limits
    assert limits.get(PRODUCER) == expected
    assert "consumer_byte_rate" not in limits


def test_a_changed_quota_counts_at_once() -> None:
    state, key = SecurityState(), QuotaKey(frozenset({("user", "u")}), PRODUCER)
    quotas = Quotas(state)
    assert quotas.account("u", "c").limits == {} and not quotas.are_set
    state.apply(quota_record(key, 5))
    assert quotas.account("u", "c").limits == {PRODUCER: Limit(5, ("u", ""))} and quotas.are_set
    assert quotas.account("u", "c").charge(PRODUCER, 100, 0) == 10_000
    assert quotas.account("u", "another").charge(PRODUCER, 0, 1) > 0, "another client of the user shares it"
    state.apply(quota_record(key, 20))
    assert quotas.account("u", "c").charge(PRODUCER, 200, 0) == 5_000, "what was used stays"
    state.apply(quota_record(key, None))
    assert quotas.account("u", "c").charge(PRODUCER, 1_000, 1) == 0 and not quotas.are_set


@pytest.fixture
def of_any_client_id(monkeypatch: pytest.MonkeyPatch) -> Quotas:
    """Quotas that each client id has for itself, with room for three clients."""
    monkeypatch.setattr("gateway.security.quotas.MAX_KNOWN", 3)
    state = SecurityState()
    for quota in (PRODUCER, MUTATION_RATE):
        state.apply(quota_record(QuotaKey(frozenset({("client-id", None)}), quota), 5))
    return Quotas(state)


def test_the_longest_unused_account_makes_room(of_any_client_id: Quotas) -> None:
    quotas = of_any_client_id
    first = quotas.account("u", "c")
    first.charge(PRODUCER, 10, 0)
    for number in range(10):
        quotas.account("u", f"c{number}").charge(PRODUCER, 10, 0)
        assert quotas.account("u", "c") is first
    assert len(quotas._accounts) == 3
    assert len(quotas._rates) <= 3 * len(first.rates)


def test_the_longest_unused_bucket_makes_room(of_any_client_id: Quotas) -> None:
    quotas = of_any_client_id
    limit = quotas.account("u", "c").limits[MUTATION_RATE]
    first = quotas.bucket(limit)
    for number in range(10):
        bucket = quotas.bucket(quotas.account("u", f"c{number}").limits[MUTATION_RATE])
        bucket.take(1_000, 5, 0)
        assert quotas.bucket(limit) is first
    assert len(quotas._buckets) == 3


def test_accounts_that_share_a_quota_share_its_rate_when_others_make_room(of_any_client_id: Quotas) -> None:
    quotas = of_any_client_id
    first = quotas.account("ann", "c")
    first.charge(PRODUCER, 1_000, 0)
    quotas.account("bob", "c")
    for number in range(2):
        quotas.account("ann", f"c{number}")
    del first
    assert quotas.account("ann", "c").charge(PRODUCER, 0, 0) > 0


def test_long_client_ids_are_kept_as_hashes(of_any_client_id: Quotas) -> None:
    quotas = of_any_client_id
    ids = ["c" * 30_000 + end for end in ("a", "b")]
    for client_id in ids:
        quotas.account("u", client_id)
    quotas.account("u", ids[0]).charge(PRODUCER, 1_000, 0)
    assert quotas.account("u", ids[0]).charge(PRODUCER, 0, 0) > 0
    assert quotas.account("u", ids[1]).charge(PRODUCER, 0, 0) == 0
    names = [*quotas._accounts, *(sharers for _, sharers in quotas._rates)]
    assert max(len(client_id) for _, client_id in names) < 100
    quotas.account("u", ids[0])
    _, hashed = list(quotas._accounts)[-1]
    assert quotas.account("u", hashed).charge(PRODUCER, 0, 0) == 0, "a client id that equals a hash is another one"


def test_the_quota_of_a_long_client_id_is_found() -> None:
    state, client_id = SecurityState(), "c" * 1_000
    state.apply(quota_record(QuotaKey(frozenset({("client-id", client_id)}), PRODUCER), 5))
    assert Quotas(state).account("u", client_id).limits[PRODUCER].bound == 5


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(-50, 1_000)), max_size=60), st.integers(1, 300))
def test_charging_is_recording_and_asking(uses: list[tuple[int, int]], bound: int) -> None:
    """The throttle time is computed only when it may be above 0, which must not matter."""
    charged, recorded, now_ms = Rate(), Rate(), 0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        recorded.record(amount, now_ms)
        assert charged.charge(amount, bound, now_ms) == recorded.throttle_time_ms(bound, now_ms)


@pytest.mark.parametrize("value", [0, -1, float("nan"), 1.5, 2.0**63 * 2, float("inf")])
def test_values_that_are_no_rates(value: float) -> None:
    assert invalid_quota(frozenset({("user", "u")}), PRODUCER, value) is not None


def test_entities() -> None:
    assert invalid_entity([("user", None), ("client-id", "c")]) is None
    assert invalid_entity([("ip", "::1")]) is None
    assert invalid_entity([("ip", "::1"), ("user", "u")]) is not None
    assert invalid_entity([]) is not None
