"""Gateways of one namespace behind a haproxy, in both forms at the same time: an address for each, and a single one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.haproxy.config import Backend, haproxy_config, single_address_config
from deploy.local.process import ChildProcess, free_port, free_ports
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, connected

FOUND_S = 30.0


class HaproxyFleet:
    """The addresses for clients: `bootstrap` leads to the gateways' own addresses, `single` is the one of all."""

    def __init__(self, work_dir: Path, service_url: str, admin_url: str, count: int, spares: int = 0) -> None:
        """haproxy knows the `spares`, which a test may start."""
        first, *advertised = free_ports(count + spares + 1)
        single = free_port()
        self.bootstrap, self.single = f"{HOST}:{first}", f"{HOST}:{single}"
        pulsar = {"namespace": unique_topic("haproxy")}
        gateways = [
            GatewayProcess(
                work_dir / f"gateway{number}", service_url, admin_url, {"pulsar": pulsar, **_listeners(port, single)}
            )
            for number, port in enumerate(advertised)
        ]
        self.gateways, self.spares = gateways[:count], gateways[count:]
        own = [Backend(HOST, int(each.config["kafka"]["port"]), _http_port(each)) for each in gateways]
        shared = [Backend(HOST, _listener(each, "single"), _http_port(each)) for each in gateways]
        work_dir.mkdir(parents=True, exist_ok=True)
        (work_dir / "each.cfg").write_text(haproxy_config(own, HOST, first))
        (work_dir / "single.cfg").write_text(single_address_config(shared, HOST, single))
        self._work_dir = work_dir
        self._haproxy = ChildProcess("haproxy", work_dir / "haproxy.log")

    @property
    def advertised(self) -> set[int]:
        """Ports of haproxy, one for each gateway."""
        return {int(each.config["kafka"]["advertised_port"]) for each in self.gateways}

    def inside(self, gateway: GatewayProcess) -> str:
        """Each gateway's listener for clients without haproxy."""
        return f"{HOST}:{_listener(gateway, 'inside')}"

    def start(self) -> None:
        for gateway in self.gateways:
            gateway.start()
        for gateway in self.gateways:
            gateway.wait_ready()
        self._start_haproxy()
        deadline = time.monotonic() + FOUND_S
        while not self._is_complete():
            assert time.monotonic() < deadline, "haproxy does not find the gateways, or they do not know each other"
            time.sleep(0.05)

    def _is_complete(self) -> bool:
        """A gateway is ready as soon as it knows itself."""
        known = [_brokers(self.inside(gateway)) for gateway in self.gateways]
        return min(known) == len(known) and _brokers(self.bootstrap) > 0 and _brokers(self.single) > 0

    def reset_connections(self) -> None:
        """Close all connections to and from haproxy: kill it and start another one."""
        self._haproxy.kill()
        self._start_haproxy()

    def _start_haproxy(self) -> None:
        files = [str(self._work_dir / name) for name in ("each.cfg", "single.cfg")]
        self._haproxy.start(["haproxy", "-db", "-f", files[0], "-f", files[1]])

    def stop(self) -> None:
        self._haproxy.stop()
        for gateway in self.gateways:
            gateway.kill()


@contextmanager
def haproxy_fleet(
    work_dir: Path, service_url: str, admin_url: str, count: int, spares: int = 0
) -> Iterator[HaproxyFleet]:
    fleet = HaproxyFleet(work_dir, service_url, admin_url, count, spares)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def _listeners(advertised: int, single: int) -> dict[str, Any]:
    return {
        "kafka": {
            "host": HOST, "port": free_port(), "proxy_protocol": True, "advertised_port": advertised,
            "listeners": [
                {"name": "inside", "host": HOST, "port": free_port()},
                {
                    "name": "single", "host": HOST, "port": free_port(), "proxy_protocol": True,
                    "single_address": True, "advertised_port": single,
                },
            ],
        },
        "fleet": {"forwarding": {"host": HOST, "port": free_port()}},
    }  # fmt: skip


def _listener(gateway: GatewayProcess, name: str) -> int:
    return next(int(each["port"]) for each in gateway.config["kafka"]["listeners"] if each["name"] == name)


def _http_port(gateway: GatewayProcess) -> int:
    return int(gateway.config["http"]["port"])


def _brokers(bootstrap: str) -> int:
    """The number of brokers that the gateway at this address knows; 0 when nothing answers."""
    try:
        with connected(bootstrap) as client:
            return len(client.call("Metadata", 9, topics=[])["brokers"])
    except (OSError, ConnectionClosedError):
        return 0
