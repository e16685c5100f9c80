"""How clients connect: plain or with TLS, directly or with a PROXY header, which may be one that nobody should send."""

from __future__ import annotations

import ipaddress
import ssl
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from deploy.local.certificates import Authority
from gateway.config.listeners import TlsSection
from gateway.observability.metrics import Metrics
from gateway.transport.certificates import Certificates
from protocol.proxy.header import V2_SIGNATURE, Endpoint, encode_proxy_header
from tests.unit.gateway.network.whole.sockets import HOST, Contexts

LOCAL, PROXY, NOTHING = 0x20, 0x21, 0x22
UNSPECIFIED, TCP4, TCP6, UNIX = 0, 0x11, 0x21, 0x31
NO_OPERATION = 0x04
FIXED, FIELD = struct.Struct(">12sBBH"), struct.Struct(">BH")


class Form(NamedTuple):
    tls: Contexts | None = None
    header: Callable[[Endpoint], bytes] | None = None
    names_client: bool = True
    is_trusted: bool = True
    """The header comes from a trusted proxy."""
    is_valid: bool = True


def v2(command: int, family: int, body: bytes) -> bytes:
    return FIXED.pack(V2_SIGNATURE, command, family, len(body)) + body


def with_fields(size: int) -> Callable[[Endpoint], bytes]:
    def make(source: Endpoint) -> bytes:
        packed = ipaddress.ip_address(source.host).packed
        addresses = packed + bytes(len(packed)) + struct.pack(">HH", source.port, 1)
        field = FIELD.pack(NO_OPERATION, size) + bytes(size)
        return v2(PROXY, TCP4 if len(packed) == 4 else TCP6, addresses + field)

    return make


class Header(NamedTuple):
    make: Callable[[Endpoint], bytes]
    names_client: bool
    is_valid: bool


HEADERS = [
    Header(encode_proxy_header, True, True),
    Header(with_fields(0), True, True),
    Header(with_fields(3_000), True, True),
    Header(with_fields(5_000), True, False),
    Header(lambda source: v2(LOCAL, UNSPECIFIED, b""), False, True),
    Header(lambda source: v2(LOCAL, TCP4, bytes(12)), False, True),
    Header(lambda source: v2(PROXY, UNIX, bytes(216)), False, True),
    Header(lambda source: b"PROXY UNKNOWN ffff::1 x\r\n", False, True),
    Header(lambda source: encode_proxy_header(source) * 2, True, False),
    Header(lambda source: v2(NOTHING, UNSPECIFIED, b""), False, False),
    Header(lambda source: b"PROXY TCP4 192.0.2.1", False, False),
    Header(lambda source: b"PROXY " + b"x" * 200, False, False),
]


def contexts() -> list[Contexts]:
    """A version of TLS each. None has a session to resume."""
    return [Contexts(each.accepts, each.connects) for each in _contexts()]


def renewed(contexts: Contexts) -> Contexts:
    """The server has a new certificate. Clients may still try to resume sessions."""
    new = next(each for each in _contexts() if each.accepts is not contexts.accepts)
    return Contexts(new.accepts, contexts.connects, contexts.session)


@cache
def _contexts() -> list[Contexts]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        issued = authority.issue("gateway", hosts=[HOST])
        settings = TlsSection(certificate=issued.certificate, key=issued.key, authorities=authority.certificate)
        for newest in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            accepts = Certificates("tls", settings, "requested", Metrics()).current
            connects = ssl.create_default_context(cafile=str(authority.certificate))
            connects.maximum_version = newest
            found.append(Contexts(accepts, connects))
    return found


def some_form(random: Random, tls: Contexts | None) -> Form:
    if random.random() < 0.6:
        return Form(tls)
    header = random.choice(HEADERS)
    return Form(tls, header.make, header.names_client, random.random() < 0.9, header.is_valid)
