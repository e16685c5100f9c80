"""Limits the new connections of each address: Kafka's quota `connection_creation_rate` (KIP-612)."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from gateway.security.quota_entities import CONNECTION_RATE, IP
from gateway.security.quota_rates import WINDOW_MS, Rate
from gateway.security.state import SecurityState

MAX_ADDRESSES = 10_000
"""Above this number, the address whose last connection is oldest is forgotten."""

IPV6_SITE_BITS = 64
"""One client may own all addresses with this prefix."""

Address = IPv4Address | IPv6Address
Site = IPv4Address | IPv6Network | str
"""What one client may own: an address, a network of IPv6, or a host whose address is not known."""


class AddressQuotas:
    """Counts each address separately, also when the default quota of all addresses applies."""

    def __init__(self, state: SecurityState) -> None:
        self._state = state
        self._version = -1
        self._bounds: dict[Address | None, float] = {}
        """Connections per second. The key None is the default."""
        self._rates: OrderedDict[Address, Rate] = OrderedDict()

    def throttle_time_ms(self, host: str, now_ms: float) -> int:
        """Record a new connection. 0: accept it. Otherwise close it after this time (ms); it does not count then."""
        if self._version != self._state.quotas_version:
            self._read_bounds()
        if not self._bounds:
            return 0
        address = address_of(host)
        if address is None:
            return 0
        bound = self._bounds.get(address, self._bounds.get(None))
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

    def _read_bounds(self) -> None:
        self._version = self._state.quotas_version
        self._bounds.clear()
        for entity, quotas in self._state.quotas.items():
            name = dict(entity).get(IP, "")
            address = None if name is None else address_of(name)
            if CONNECTION_RATE in quotas and (name is None or address is not None):
                self._bounds[address] = quotas[CONNECTION_RATE]


def address_of(host: str) -> Address | None:
    """Parse an address, so that all its spellings are equal. None if the text is not an address."""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def site_of(host: str) -> Site:
    """What limits for each client count together."""
    address = address_of(host)
    if address is None or isinstance(address, IPv4Address):
        return address or host
    return IPv6Network((int(address), IPV6_SITE_BITS), strict=False)
