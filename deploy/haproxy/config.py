"""haproxy's configuration in front of a fleet: one address to begin with and one more for each gateway, or one for all.

Clients bootstrap at the first, which any gateway answers. Each gateway then sends them to the address of the leader, so
each has a frontend of its own, whose address is what that gateway advertises. Behind a single address any gateway takes
any request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CHECK_MS = 1_000
"""Between two questions for /readyz; two bad answers take a gateway out, one good puts it back."""
IDLE_MINUTES = 15
"""Longer than the gateway's own [limits] connection_idle_ms: it is the one that ends idle connections."""


class Backend(NamedTuple):
    """A gateway, as haproxy reaches it."""

    host: str
    port: int
    """Of a listener with proxy_protocol = true."""
    http_port: int


def single_address_config(gateways: Sequence[Backend], bind_host: str, port: int) -> str:
    """All gateways behind one port, which all of them advertise; each passes on what another one leads."""
    return "\n".join([_HEAD, _frontend("kafka", bind_host, port), _backend("kafka", gateways)])


def haproxy_config(gateways: Sequence[Backend], bind_host: str, bootstrap_port: int) -> str:
    """Gateway N, from 0, has the port `bootstrap_port` + 1 + N: its advertised_port."""
    parts = [_HEAD, _frontend("bootstrap", bind_host, bootstrap_port), _backend("bootstrap", gateways)]
    for number, gateway in enumerate(gateways):
        name = f"gateway-{number}"
        parts += [_frontend(name, bind_host, bootstrap_port + 1 + number), _backend(name, [gateway], number)]
    return "\n".join(parts)


_HEAD = f"""\
defaults
    mode tcp
    timeout connect 5s
    timeout client {IDLE_MINUTES}m
    timeout server {IDLE_MINUTES}m
    timeout check 2s
"""


def _frontend(name: str, host: str, port: int) -> str:
    return f"frontend {name}\n    bind {host}:{port}\n    default_backend {name}\n"


def _backend(name: str, gateways: Sequence[Backend], first: int = 0) -> str:
    lines = [
        f"backend {name}",
        "    balance leastconn",
        "    option httpchk GET /readyz",
        # A gateway that has just died takes no connection: the next one does, before its health is known.
        "    option redispatch 1",
        # Clients of a gateway that stands still hear of it, and look for the next.
        f"    default-server send-proxy-v2 check inter {CHECK_MS}ms fall 2 rise 1 on-marked-down shutdown-sessions",
    ]
    for number, gateway in enumerate(gateways, first):
        lines.append(f"    server gateway-{number} {gateway.host}:{gateway.port} port {gateway.http_port}")
    return "\n".join(lines) + "\n"
