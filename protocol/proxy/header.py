"""The header in which a load balancer sends the client's address: PROXY protocol, versions 1 and 2.

v1 is a line of text of at most 107 bytes, ended by CR LF: `PROXY TCP4|TCP6 SOURCE DESTINATION SPORT DPORT`, or
`PROXY UNKNOWN…`.

v2 is binary, big-endian:

    signature         12 bytes
    version, command  u8     0x2 and 0 (LOCAL: the balancer's own connection) or 1 (PROXY)
    family, transport u8     0x11 TCP over IPv4, 0x21 TCP over IPv6; others have no address that is usable here
    length            u16    of what follows: addresses, then fields
    field             u8 type, u16 length, value

These fields are used, others are skipped:

    0x02 AUTHORITY    the host name that the client requested (SNI)
    0x20 SSL          u8 flags (0x01 the client spoke TLS, 0x06 gave a certificate), u32 0 if it was verified, fields
    0x22 SSL_CN       within SSL: the common name in the client's certificate
    0xE0 cluster      `tenant/namespace`, from one gateway to another: the cluster that the requests are for
    0xE1 principal    `User:name`, from one gateway to another: the client's principal
    0xE2 own          empty, from one gateway to another: the requests are its own, not a client's

https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

V1_START = b"PROXY "
V1_MAX_BYTES = 107
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_FIXED_BYTES = 16
MAX_HEADER_BYTES = 4_096
"""The limit for v2, whose length field allows more: headers of load balancers have a few hundred bytes."""

_V2_FIXED = struct.Struct(">12sBBH")
_V2_ADDRESSES = {0x11: struct.Struct(">4s4sHH"), 0x21: struct.Struct(">16s16sHH")}
_V1_FAMILIES = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED = 0x00
_FIELD, _SSL_FIXED = struct.Struct(">BH"), struct.Struct(">BI")
_AUTHORITY, _SSL, _SSL_CN = 0x02, 0x20, 0x22
_CLUSTER, _PRINCIPAL, _OWN = 0xE0, 0xE1, 0xE2
_SPOKE_TLS, _GAVE_CERTIFICATE = 0x01, 0x06


class MalformedProxyHeaderError(Exception):
    """The connection does not begin with a PROXY header."""


class Endpoint(NamedTuple):
    host: str
    port: int


class ProxiedTls(NamedTuple):
    """The client's connection to the load balancer uses TLS."""

    common_name: str | None
    """The common name in the client's certificate, which the balancer has verified; None without a certificate."""


class ProxyHeader(NamedTuple):
    size_bytes: int
    source: Endpoint | None
    """The client's address; None if the header has none, or if the connection is the load balancer's own."""
    tls: ProxiedTls | None = None
    authority: str | None = None
    """The host name that the client requested."""
    cluster: str | None = None
    """The cluster that the requests are for, between gateways; None for the fleet's own cluster."""
    principal: str | None = None
    """The client's principal as Kafka names it, between gateways; None if rights depend on no principal."""
    is_own: bool = False
    """The requests are the other gateway's own, not a client's."""


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of a connection; None if it is not complete yet. Raises MalformedProxyHeaderError."""
    if _begins(data, V2_SIGNATURE):
        return _parse_v2(data)
    if _begins(data, V1_START):
        return _parse_v1(data)
    raise MalformedProxyHeaderError("no PROXY header")


def encode_proxy_header(source: Endpoint) -> bytes:
    """A version 1 header with the client's address and a placeholder for the destination. UNKNOWN if it is no IP
    address."""
    try:
        version = ipaddress.ip_address(source.host).version
    except ValueError:
        return V1_START + b"UNKNOWN\r\n"
    nowhere = "0.0.0.0" if version == 4 else "::"
    return V1_START + f"TCP{version} {_without_zone(source.host)} {nowhere} {source.port} 0\r\n".encode("ascii")


def encode_gateway_header(
    source: Endpoint, cluster: str | None = None, principal: str | None = None, *, is_own: bool = False
) -> bytes:
    """A version 2 header with the client's address, and what one gateway tells another about the client."""
    try:
        address = ipaddress.ip_address(_without_zone(source.host))
    except ValueError:
        family, addresses = _UNSPECIFIED, b""
    else:
        family = 0x11 if address.version == 4 else 0x21
        addresses = _V2_ADDRESSES[family].pack(address.packed, bytes(len(address.packed)), source.port, 0)
    body = addresses + _encode_field(_CLUSTER, cluster) + _encode_field(_PRINCIPAL, principal)
    body += _encode_field(_OWN, "" if is_own else None)
    return _V2_FIXED.pack(V2_SIGNATURE, _PROXY, family, len(body)) + body


def _encode_field(kind: int, text: str | None) -> bytes:
    if text is None:
        return b""
    value = text.encode()
    return _FIELD.pack(kind, len(value)) + value


def _begins(data: bytes, start: bytes) -> bool:
    return data[: len(start)] == start[: len(data)]


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_MAX_BYTES)
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise MalformedProxyHeaderError("PROXY line without an end")
        return None
    words = data[len(V1_START) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return ProxyHeader(end + 2, None)
    family = _V1_FAMILIES.get(words[0])
    if family is None or len(words) != 5:
        raise MalformedProxyHeaderError("PROXY line of an unknown form")
    try:
        source, _ = family(words[1].decode("ascii")), family(words[2].decode("ascii"))
    except ValueError as error:
        raise MalformedProxyHeaderError(f"PROXY line: {error}") from None
    port, _ = _port(words[3]), _port(words[4])
    return ProxyHeader(end + 2, Endpoint(_without_zone(str(source)), port))


def _without_zone(address: str) -> str:
    """Removes the zone, which has no meaning on another machine, and may contain any text."""
    return address.partition("%")[0]


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise MalformedProxyHeaderError("PROXY line with an invalid port")
    return int(word)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < V2_FIXED_BYTES:
        return None
    _, command, family, length = _V2_FIXED.unpack_from(data)
    if command not in {_LOCAL, _PROXY}:
        raise MalformedProxyHeaderError(f"PROXY header of version and command {command:#04x}")
    size_bytes = V2_FIXED_BYTES + length
    if size_bytes > MAX_HEADER_BYTES:
        raise MalformedProxyHeaderError(f"PROXY header of {size_bytes} bytes")
    if len(data) < size_bytes:
        return None
    if command == _LOCAL:
        return ProxyHeader(size_bytes, None)
    if family == _UNSPECIFIED:
        return _with_fields(data[V2_FIXED_BYTES:size_bytes], size_bytes, None)
    addresses = _V2_ADDRESSES.get(family)
    if addresses is None:
        return ProxyHeader(size_bytes, None)
    if length < addresses.size:
        raise MalformedProxyHeaderError("PROXY header too short for its addresses")
    source, _, port, _ = addresses.unpack_from(data, V2_FIXED_BYTES)
    client = Endpoint(str(ipaddress.ip_address(source)), port)
    return _with_fields(data[V2_FIXED_BYTES + addresses.size : size_bytes], size_bytes, client)


def _with_fields(data: bytes, size_bytes: int, source: Endpoint | None) -> ProxyHeader:
    fields = _fields(data)
    authority, cluster, principal = (
        None if (value := fields.get(kind)) is None else _as_text(value) for kind in (_AUTHORITY, _CLUSTER, _PRINCIPAL)
    )
    tls = _tls(fields[_SSL]) if _SSL in fields else None
    return ProxyHeader(size_bytes, source, tls, authority, cluster, principal, _OWN in fields)


def _fields(data: bytes) -> dict[int, bytes]:
    """The values of the fields, by type."""
    found: dict[int, bytes] = {}
    position = 0
    while position < len(data):
        start = position + _FIELD.size
        if start > len(data):
            raise MalformedProxyHeaderError("PROXY header with a field that is cut off")
        kind, length = _FIELD.unpack_from(data, position)
        position = start + length
        if position > len(data):
            raise MalformedProxyHeaderError("PROXY header with a field that is cut off")
        found[kind] = data[start:position]
    return found


def _tls(data: bytes) -> ProxiedTls | None:
    if len(data) < _SSL_FIXED.size:
        raise MalformedProxyHeaderError("PROXY header with a TLS field that is cut off")
    flags, unverified = _SSL_FIXED.unpack_from(data)
    if not flags & _SPOKE_TLS:
        return None
    name = _fields(data[_SSL_FIXED.size :]).get(_SSL_CN)
    is_verified = flags & _GAVE_CERTIFICATE and not unverified
    return ProxiedTls(_as_text(name) if is_verified and name else None)


def _as_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedProxyHeaderError("PROXY header with a name that is not UTF-8") from None
