"""The PROXY header before a connection's first byte."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from gateway.config.listeners import Networks
from protocol.proxy.header import MAX_HEADER_BYTES, ProxyHeader, parse_proxy_header


class Proxied(NamedTuple):
    """The complete header, and the client's own bytes that follow it."""

    header: ProxyHeader
    rest: bytes


class AwaitedProxyHeader:
    """Receives the PROXY header of one connection."""

    def __init__(self, trusted: Networks) -> None:
        self._trusted = trusted
        self._data = b""

    @property
    def begun(self) -> bool:
        return bool(self._data)

    def may_come_from(self, host: str) -> bool:
        address = ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted)

    def take(self, data: memoryview) -> Proxied | None:
        """Add received data. Returns None until the header is complete. Raises MalformedProxyHeaderError."""
        self._data += data
        header = parse_proxy_header(self._data[:MAX_HEADER_BYTES])
        return None if header is None else Proxied(header, self._data[header.size_bytes :])
