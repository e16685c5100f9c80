"""The quotas of new connections by address, as administrators have set them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from gateway.security.quota_entities import IP
from gateway.security.records import Entity

Address = IPv4Address | IPv6Address


class ConnectionRates:
    """Kept up to date with each change: there may be tens of thousands, too many to read them again after a change."""

    def __init__(self) -> None:
        self._by_address: dict[Address | None, dict[str | None, float]] = {}
        """Connections per second, by each spelling of the address. The key None is the default."""

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def set(self, entity: Entity, rate: float | None) -> None:
        """None removes the quota."""
        name = dict(entity).get(IP, "")
        address = None if name is None else address_of(name)
        if name is not None and address is None:
            return
        spellings = self._by_address.setdefault(address, {})
        if rate is None:
            spellings.pop(name, None)
        else:
            spellings[name] = rate
        if not spellings:
            del self._by_address[address]

    def of(self, address: Address) -> float | None:
        """The rate that is allowed to the address; None if there is no limit."""
        spellings = self._by_address.get(address) or self._by_address.get(None)
        return None if spellings is None else next(reversed(spellings.values()))


def address_of(host: str) -> Address | None:
    """Parse an address, so that all its spellings are equal. None if the text is not an address."""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
