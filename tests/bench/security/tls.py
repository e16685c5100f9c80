"""What TLS costs: without it, in the gateway, and in a haproxy in front."""

from __future__ import annotations

import socket
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.certificates import Authority, Issued
from deploy.local.process import ChildProcess, free_port
from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.loads.meter import Result
from tests.bench.process import cpu_seconds
from tests.bench.security.gateways import ROUNDS, fill, gateway_on, listener_address, produce_cost, tail_cost
from tests.bench.servers import create_topic
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import encode_request

SIZE = 160
HANDSHAKES = 300
FOUND_S = 20.0


class _Way(NamedTuple):
    """A way to the gateway."""

    name: str
    address: str
    authority: str | None = None


class _Scene(NamedTuple):
    gateway: GatewayProcess
    haproxy: ChildProcess
    ways: list[_Way]

    @property
    def pids(self) -> list[int]:
        return [self.gateway.pid, self.haproxy.pid]


def tls(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """The ways in turns. The cost of TLS is in the process that terminates it; haproxy also costs something without
    TLS."""
    with _scene(work_dir, pulsar) as scene:
        topic = unique_topic("bench")
        create_topic(scene.gateway.bootstrap, topic)
        fill(scene.gateway.bootstrap, topic, SIZE)
        _add_rows(figures, "produce", _in_turns(scene, _producing(scene, topic)))
        _add_rows(figures, "tail", _in_turns(scene, _reading(scene, topic)))
        for way in scene.ways:
            costs = _handshakes(scene, way)
            figures.add(
                "TLS, CPU for a new connection", ("way", "ms in the gateway", "ms in haproxy"), [way.name, *costs]
            )


def _producing(scene: _Scene, topic: str) -> Callable[[_Way], Result]:
    return lambda way: produce_cost(scene.pids, way.address, topic, SIZE, authority=way.authority)


def _reading(scene: _Scene, topic: str) -> Callable[[_Way], Result]:
    plain = scene.gateway.bootstrap
    return lambda way: tail_cost(scene.pids, way.address, plain, topic, SIZE, authority=way.authority)


def _in_turns(scene: _Scene, measure: Callable[[_Way], Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {way.name: [] for way in scene.ways}
    for number in range(ROUNDS):
        for way in scene.ways[:: -1 if number % 2 else 1]:
            found[way.name].append(measure(way))
    return found


def _add_rows(figures: Figures, what: str, found: dict[str, list[Result]]) -> None:
    for name, results in found.items():
        gateway_us, haproxy_us = (statistics.median(each["cpu_us"][at] for each in results) for at in (0, 1))
        figures.add(
            "TLS, CPU for a batch of 160 records",
            ("what, way", "batches/s", "µs in the gateway", "µs in haproxy", "µs together"),
            [f"{what}, {name}", statistics.median(each["batches_per_s"] for each in results),
             gateway_us, haproxy_us, gateway_us + haproxy_us],
        )  # fmt: skip


def _handshakes(scene: _Scene, way: _Way) -> list[float]:
    """Milliseconds of CPU of the gateway and of haproxy, for a connection that sends ApiVersions."""
    payload = encode_request("ApiVersions", 0, {})
    request = len(payload).to_bytes(4, "big") + payload
    context = None if way.authority is None else ssl.create_default_context(cafile=way.authority)
    before = [cpu_seconds(pid) for pid in scene.pids]
    for _ in range(HANDSHAKES):
        with _connected(way.address, context) as client:
            client.sendall(request)
            assert client.recv(4)
    return [(cpu_seconds(pid) - begun) / HANDSHAKES * 1e3 for pid, begun in zip(scene.pids, before, strict=True)]


def _connected(address: str, context: ssl.SSLContext | None) -> socket.socket:
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host, int(port)), FOUND_S)
    return raw if context is None else context.wrap_socket(raw, server_hostname=host)


@contextmanager
def _scene(work_dir: Path, pulsar: PulsarStandalone) -> Iterator[_Scene]:
    authority = Authority(work_dir / "certificates")
    server = authority.issue("server", hosts=[HOST])
    files = {"certificate": str(server.certificate), "key": str(server.key)}
    ended = free_port()
    listeners: list[dict[str, Any]] = [
        {"name": "tls", "host": HOST, "port": free_port(), "protocol": "SSL", "tls": files},
        {
            "name": "ended", "host": HOST, "port": free_port(), "protocol": "SSL", "proxy_protocol": True,
            "advertised_port": ended,
        },
    ]  # fmt: skip
    kafka = {"host": HOST, "port": free_port(), "listeners": listeners}
    with gateway_on(work_dir, pulsar, kafka=kafka) as gateway:
        inside = listener_address(gateway, "ended")
        with _haproxy(work_dir, server, f"{HOST}:{ended}", inside) as haproxy:
            trusted = str(authority.certificate)
            yield _Scene(gateway, haproxy, [
                _Way("no TLS", gateway.bootstrap),
                _Way("TLS in the gateway", listener_address(gateway, "tls"), trusted),
                _Way("TLS in haproxy", f"{HOST}:{ended}", trusted),
            ])  # fmt: skip


@contextmanager
def _haproxy(work_dir: Path, server: Issued, outside: str, inside: str) -> Iterator[ChildProcess]:
    """haproxy with one thread: more threads do not change the cost."""
    both = work_dir / "haproxy.pem"
    both.write_bytes(server.certificate.read_bytes() + server.key.read_bytes())
    config = work_dir / "haproxy.cfg"
    config.write_text(
        f"global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n"
        f"frontend outside\n  bind {outside} ssl crt {both}\n  default_backend inside\n"
        f"backend inside\n  server gateway {inside} send-proxy-v2-ssl-cn\n"
    )
    haproxy = ChildProcess("haproxy", work_dir / "haproxy.log")
    haproxy.start(["haproxy", "-db", "-f", str(config)])
    try:
        haproxy.wait_until(lambda: _takes(outside), FOUND_S)
        yield haproxy
    finally:
        haproxy.kill()


def _takes(address: str) -> bool:
    try:
        _connected(address, None).close()
    except OSError:
        time.sleep(0.05)
        return False
    return True
