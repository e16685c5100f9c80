"""haproxy's configuration in front of a fleet, in two forms: an address for each gateway, or a single address for all.

With an address for each gateway, there is also a bootstrap address, which any gateway answers. Each gateway has a
frontend of its own and advertises the address of it, so clients reach the leader directly. Behind a single address any
gateway accepts any request, and forwards those that another gateway must answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CHECK_MS = 1_000
"""Time between two checks. Two failed checks take a gateway out of service, one good check puts it back."""
READY = "/readyz"
"""Answers 200 when the gateway serves everything: until then, others serve clients better."""
SERVES_PARTITIONS = "/readyz/partitions"
"""Answers 200 as soon as the gateway serves the partitions that it leads: no other gateway serves them."""
IDLE_MINUTES = 15
"""Longer than the gateway's [limits] connection_idle_ms, so that the gateway is the one that closes idle connections.
"""


class Backend(NamedTuple):
    """A gateway's addresses, as haproxy reaches them."""

    host: str
    port: int
    """The port of a listener with proxy_protocol = true."""
    http_port: int


def single_address_config(gateways: Sequence[Backend], bind_host: str, port: int) -> str:
    """All gateways behind one port, which all of them advertise. A gateway forwards what another gateway leads."""
    return "\n".join([_HEAD, _frontend("kafka", bind_host, port), _backend("kafka", gateways, READY)])


def haproxy_config(gateways: Sequence[Backend], bind_host: str, bootstrap_port: int) -> str:
    """An address for each gateway: gateway N, from 0, has the port `bootstrap_port` + 1 + N, its advertised_port."""
    parts = [_HEAD, _frontend("bootstrap", bind_host, bootstrap_port), _backend("bootstrap", gateways, READY)]
    for number, gateway in enumerate(gateways):
        name = f"gateway-{number}"
        backend = _backend(name, [gateway], SERVES_PARTITIONS, number)
        parts += [_frontend(name, bind_host, bootstrap_port + 1 + number), backend]
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


def _backend(name: str, gateways: Sequence[Backend], check_path: str, first: int = 0) -> str:
    lines = [
        f"backend {name}",
        "    balance leastconn",
        f"    option httpchk GET {check_path}",
        # When a gateway does not accept a connection, haproxy tries the next gateway, before the health check has
        # noticed.
        "    option redispatch 1",
        # When a gateway is marked as down, haproxy closes its connections, so that clients of a suspended gateway
        # reconnect.
        f"    default-server send-proxy-v2 check inter {CHECK_MS}ms fall 2 rise 1 on-marked-down shutdown-sessions",
    ]
    for number, gateway in enumerate(gateways, first):
        lines.append(f"    server gateway-{number} {gateway.host}:{gateway.port} port {gateway.http_port}")
    return "\n".join(lines) + "\n"
