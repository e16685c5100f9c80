"""The PROXY header before a connection's first byte."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

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

    def refusal(self, peer: Sequence[Any] | None) -> str | None:
        """Why no header is accepted from this peer. The system does not name one that has reset the connection."""
        if not peer or not peer[0]:
            return "reset before it was accepted"
        return None if self._is_trusted(peer[0]) else "not a trusted proxy"

    def _is_trusted(self, host: str) -> bool:
        address = ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted)

    def take(self, data: memoryview) -> Proxied | None:
        """Add received data. Returns None until the header is complete. Raises MalformedProxyHeaderError."""
        self._data += data
        header = parse_proxy_header(self._data[:MAX_HEADER_BYTES])
        return None if header is None else Proxied(header, self._data[header.size_bytes :])
