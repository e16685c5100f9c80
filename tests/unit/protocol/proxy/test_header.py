"""PROXY headers of both versions: an incomplete one waits for more bytes, an invalid one is refused."""

import ipaddress
import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.proxy.header import (
    MAX_HEADER_BYTES,
    V2_SIGNATURE,
    Endpoint,
    MalformedProxyHeaderError,
    ProxyHeader,
    encode_gateway_header,
    encode_proxy_header,
    parse_proxy_header,
)


def v2(command: int, family: int, body: bytes) -> bytes:
    return V2_SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


V4_BODY = socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 51_000, 9_092)
V6_BODY = ipaddress.ip_address("2001:db8::7").packed * 2 + struct.pack(">HH", 51_000, 9_092)
GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n", Endpoint("192.0.2.7", 51_000)),
    (b"PROXY TCP6 2001:db8::7 ::1 51000 9092\r\n", Endpoint("2001:db8::7", 51_000)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff 1 2 3\r\n", None),
    (v2(0x21, 0x11, V4_BODY), Endpoint("192.0.2.7", 51_000)),
    (v2(0x21, 0x21, V6_BODY), Endpoint("2001:db8::7", 51_000)),
    (v2(0x21, 0x11, V4_BODY + b"\x04\x00\x02ab"), Endpoint("192.0.2.7", 51_000)),
    (v2(0x20, 0x00, b""), None),
    (v2(0x20, 0x11, V4_BODY), None),
    (v2(0x21, 0x00, b""), None),
    (v2(0x21, 0x31, b"x" * 216), None),
]
BAD = [
    b"\x00\x00\x00\x12\x00\x03",
    b"GET / HTTP/1.1\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51000\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 65536\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 9092\r\n",
    b"PROXY TCP4 ::1 10.0.0.1 1 2\r\n",
    b"PROXY TCP6 192.0.2.7 ::1 1 2\r\n",
    b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY TCP4 \xff 10.0.0.1 1 2\r\n",
    b"PROXY TCP4  10.0.0.1 1 2\r\n",
    b"PROXY " + b"x" * 101,
    v2(0x22, 0x11, V4_BODY),
    v2(0x31, 0x11, V4_BODY),
    v2(0x21, 0x11, V4_BODY[:-1]),
    v2(0x21, 0x21, V4_BODY),
    v2(0x21, 0x11, b"x" * MAX_HEADER_BYTES),
]


@pytest.mark.parametrize(("data", "source"), GOOD)
def test_good(data: bytes, source: Endpoint | None) -> None:
    assert parse_proxy_header(data) == ProxyHeader(len(data), source)
    assert parse_proxy_header(data + b"\x00\x00\x00\x01rest") == ProxyHeader(len(data), source)


@pytest.mark.parametrize(("data", "source"), GOOD)
def test_cut_short(data: bytes, source: Endpoint | None) -> None:
    for size in range(len(data)):
        assert parse_proxy_header(data[:size]) is None


@pytest.mark.parametrize("data", BAD)
def test_bad(data: bytes) -> None:
    with pytest.raises(MalformedProxyHeaderError):
        parse_proxy_header(data)


@given(st.binary(max_size=64) | st.binary(max_size=300).map(b"PROXY ".__add__) | st.binary().map(V2_SIGNATURE.__add__))
@example(b"")
def test_any_bytes(data: bytes) -> None:
    """A header, or an error; and a header never reaches beyond the given bytes."""
    try:
        header = parse_proxy_header(data)
    except MalformedProxyHeaderError:
        return
    assert header is None or 0 < header.size_bytes <= len(data)


def test_zones_are_left_out() -> None:
    source = Endpoint("fe80::1", 51_000)
    line = b"PROXY TCP6 fe80::1%\x07<any>text ::1 51000 9092\r\n"
    assert parse_proxy_header(line) == ProxyHeader(len(line), source)
    assert encode_proxy_header(Endpoint("fe80::1%eth0", 51_000)) == encode_proxy_header(source)


@pytest.mark.parametrize("source", [Endpoint("192.0.2.7", 51_000), Endpoint("2001:db8::7", 65_535), Endpoint("x", 1)])
def test_what_is_written_is_read(source: Endpoint) -> None:
    header = encode_proxy_header(source)
    expected = None if source.host == "x" else source
    assert parse_proxy_header(header + b"frames") == ProxyHeader(len(header), expected)


@pytest.mark.parametrize("source", [Endpoint("192.0.2.7", 51_000), Endpoint("2001:db8::7", 65_535), Endpoint("x", 1)])
def test_a_cluster_that_is_written_is_read(source: Endpoint) -> None:
    header = encode_gateway_header(source, "tenant/namespace")
    expected = None if source.host == "x" else source
    assert parse_proxy_header(header + b"frames") == ProxyHeader(len(header), expected, cluster="tenant/namespace")
    for size in range(len(header)):
        assert parse_proxy_header(header[:size]) is None


def test_a_gateways_own_requests_are_marked() -> None:
    source = Endpoint("192.0.2.7", 51_000)
    for is_own in (False, True):
        header = encode_gateway_header(source, is_own=is_own)
        assert parse_proxy_header(header) == ProxyHeader(len(header), source, is_own=is_own)


@pytest.mark.parametrize("cluster", [None, "tenant/namespace"])
def test_a_principal_that_is_written_is_read(cluster: str | None) -> None:
    source = Endpoint("192.0.2.7", 51_000)
    header = encode_gateway_header(source, cluster, "User:straße")
    expected = ProxyHeader(len(header), source, cluster=cluster, principal="User:straße")
    assert parse_proxy_header(header + b"frames") == expected
