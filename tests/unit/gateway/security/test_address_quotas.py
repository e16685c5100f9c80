"""The connection rate of an address, as Kafka computes it (KIP-612)."""

from __future__ import annotations

import pytest

from gateway.security import address_quotas, connection_rates
from gateway.security.address_quotas import AddressQuotas
from gateway.security.quota_entities import CONNECTION_RATE, IP
from gateway.security.records import QuotaKey, quota_record
from gateway.security.state import SecurityState

HERE, ELSEWHERE = "192.0.2.7", "192.0.2.8"


def allow(state: SecurityState, address: str | None, rate: float | None) -> None:
    state.apply(quota_record(QuotaKey(frozenset({(IP, address)}), CONNECTION_RATE), rate))


def welcome(quotas: AddressQuotas, host: str, attempts: int, now_ms: float = 0) -> int:
    return sum(not quotas.throttle_time_ms(host, now_ms) for _ in range(attempts))


def test_ten_seconds_of_the_rate_are_welcome_at_once() -> None:
    """Refused connections do not count: the permitted rate is accepted, however often the address tries."""
    state = SecurityState()
    allow(state, HERE, 2)
    quotas = AddressQuotas(state)
    assert welcome(quotas, HERE, 100) == 20
    assert quotas.throttle_time_ms(HERE, 0) == 500, "until one more is within the rate"
    assert welcome(quotas, HERE, 100, now_ms=11_000) == 20
    assert welcome(quotas, ELSEWHERE, 100) == 100


def test_a_client_waits_for_a_second_at_the_most() -> None:
    """Kafka's quota.window.size.seconds."""
    state = SecurityState()
    allow(state, HERE, 1)
    quotas = AddressQuotas(state)
    welcome(quotas, HERE, 10)
    allow(state, HERE, 0.01)
    assert quotas.throttle_time_ms(HERE, 0) == 1_000


def test_the_quota_of_an_address_is_before_that_of_all() -> None:
    state = SecurityState()
    allow(state, None, 1)
    allow(state, HERE, 3)
    quotas = AddressQuotas(state)
    assert (welcome(quotas, HERE, 100), welcome(quotas, ELSEWHERE, 100)) == (30, 10)
    assert welcome(quotas, "192.0.2.9", 100) == 10, "each has its own"
    allow(state, None, None)
    assert welcome(quotas, ELSEWHERE, 100) == 100


@pytest.mark.parametrize("host", ["2001:db8::7", "2001:DB8:0:0:0:0:0:7", "2001:db8::7%eth0"])
def test_one_address_is_written_in_several_ways(host: str) -> None:
    state = SecurityState()
    allow(state, "2001:0db8::0007", 1)
    assert welcome(AddressQuotas(state), host, 100) == 10


def test_ipv4_through_ipv6_is_the_same_address() -> None:
    state = SecurityState()
    allow(state, HERE, 1)
    assert welcome(AddressQuotas(state), f"::ffff:{HERE}", 100) == 10


def test_what_is_no_address_has_no_quota() -> None:
    state = SecurityState()
    allow(state, "host.of.another.version", 1)
    quotas = AddressQuotas(state)
    assert welcome(quotas, HERE, 100) == 100 and welcome(quotas, "unknown", 100) == 100


def test_many_addresses_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_quotas, "MAX_ADDRESSES", 3)
    state = SecurityState()
    allow(state, None, 1)
    quotas = AddressQuotas(state)
    welcome(quotas, HERE, 100)
    for number in range(100):
        quotas.throttle_time_ms(f"198.51.100.{number}", 0)
        assert quotas.throttle_time_ms(HERE, 0), "who goes on is not forgotten"
    assert len(quotas._rates) == 3


@pytest.mark.parametrize("changed", [HERE, ELSEWHERE, None])
def test_a_change_of_one_quota_does_not_read_all_others_again(
    monkeypatch: pytest.MonkeyPatch, changed: str | None
) -> None:
    state = SecurityState()
    for number in range(200):
        allow(state, f"198.51.100.{number}", 1)
    quotas, parsed = AddressQuotas(state), list[str]()
    plain = connection_rates.address_of
    for module in (connection_rates, address_quotas):
        monkeypatch.setattr(module, "address_of", lambda host: parsed.append(host) or plain(host))  # type: ignore[func-returns-value]
    allow(state, changed, 1)
    assert welcome(quotas, HERE, 11) == (11 if changed == ELSEWHERE else 10)
    assert len(parsed) < 20


def test_the_last_spelling_of_an_address_counts_as_long_as_it_has_a_quota() -> None:
    state = SecurityState()
    allow(state, HERE, 1)
    allow(state, f"::ffff:{HERE}", 2)
    assert welcome(AddressQuotas(state), HERE, 100) == 20
    allow(state, f"::ffff:{HERE}", None)
    assert welcome(AddressQuotas(state), HERE, 100) == 10
    state.clear()
    assert welcome(AddressQuotas(state), HERE, 100) == 100
