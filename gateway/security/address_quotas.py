"""Limits the new connections of each address: Kafka's quota `connection_creation_rate` (KIP-612)."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Network

from gateway.security.connection_rates import Address, address_of
from gateway.security.quota_rates import WINDOW_MS, Rate
from gateway.security.state import SecurityState

MAX_ADDRESSES = 10_000
"""Above this number, the address whose last connection is oldest is forgotten."""

IPV6_SITE_BITS = 64
"""One client may own all addresses with this prefix."""

Site = IPv4Address | IPv6Network | str
"""What one client may own: an address, a network of IPv6, or a host whose address is not known."""


class AddressQuotas:
    """Counts each address separately, also when the default quota of all addresses applies."""

    def __init__(self, state: SecurityState) -> None:
        self._allowed = state.connection_rates
        self._rates: OrderedDict[Address, Rate] = OrderedDict()

    def throttle_time_ms(self, host: str, now_ms: float) -> int:
        """Record a new connection. 0: accept it. Otherwise close it after this time (ms); it does not count then."""
        if not self._allowed:
            return 0
        address = address_of(host)
        if address is None:
            return 0
        bound = self._allowed.of(address)
        if bound is None:
            return 0
        rate = self._rate(address)
        rate.record(1, now_ms)
        throttle_time_ms = min(WINDOW_MS, rate.throttle_time_ms(bound, now_ms))
        if throttle_time_ms:
            rate.record(-1, now_ms)
        return throttle_time_ms

    def _rate(self, address: Address) -> Rate:
        rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = Rate()
        self._rates.move_to_end(address)
        if len(self._rates) > MAX_ADDRESSES:
            self._rates.popitem(last=False)
        return rate


def site_of(host: str) -> Site:
    """What limits for each client count together."""
    address = address_of(host)
    if address is None or isinstance(address, IPv4Address):
        return address or host
    return IPv6Network((int(address), IPV6_SITE_BITS), strict=False)
