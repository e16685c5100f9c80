"""A trial of gateways behind a single address, which forward requests, and do not reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.haproxy.config import Backend, single_address_config
from deploy.local.process import ChildProcess, free_port
from deploy.topology.description import Kind, Node
from tests.integration.confluent import create_topic, read_all
from tests.regions.lab import Lab, Writer, until
from tests.regions.member import Members
from tests.regions.network import HERE
from tests.regions.traffic import SOCKET_TIMEOUT_MS
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, connected
from tests.support.traffic.history import History, check

Row = dict[str, str]
PARTITIONS = 4
ANYWHERE = ["0.0.0.0/0"]
HOLD_S = 10.0
BEFORE_S = 3.0
READY_S = 120.0


def cut_between_gateways(lab: Lab) -> Row:
    """Gateways behind a single address do not reach each other. Only requests that must be forwarded wait."""
    topic = unique_topic("gateways-cut")
    with TemporaryDirectory(prefix="kafka-gateway-regions-") as folder, _single_address(lab, Path(folder)) as address:
        create_topic(address, topic, PARTITIONS)
        writer = Writer(address, topic, PARTITIONS, enable_idempotence=True, socket_timeout_ms=SOCKET_TIMEOUT_MS)
        with Members(address, topic, topic) as members:
            writer.write(BEFORE_S)
            members.await_any()
            with lab.cut(_is_gateway, _is_gateway):
                before = writer.acknowledged
                writer.write(HOLD_S)
                went_on = sum(now > then for then, now in zip(before, writer.acknowledged, strict=True))
            healing_s = writer.write_until_acknowledged_anew()
            writer.flush()
            writer.check_no_errors()
            members.await_values({*writer.offsets})
        logs = {number: [*enumerate(read_all(address, topic, number))] for number in range(PARTITIONS)}
        history = History(writer.writes, logs, members.reads, members.commits)
        check(history)
    return {
        "acknowledged": str(len(history.writes)),
        "lost": "0",
        "doubled": "0",
        "read again": str(len(history.reads) - len(history.writes)),
        "partitions written meanwhile": f"{went_on} of {PARTITIONS}",
        "writes stood still": f"{healing_s:.1f} s longer than the cut of {HOLD_S:.0f} s, in the others",
    }


def _is_gateway(node: Node) -> bool:
    return node.kind is Kind.GATEWAY


@contextmanager
def _single_address(lab: Lab, folder: Path) -> Iterator[str]:
    """Two additional gateways of a namespace of their own, on the hosts of two gateways of the topology."""
    port = free_port()
    with ExitStack() as stack:
        namespace = unique_topic("single")
        gateways = [_gateway(lab, folder, node, namespace, port) for node in lab.topology.of(Kind.GATEWAY)]
        for gateway in gateways:
            stack.callback(gateway.kill)
            gateway.start()
        for gateway in gateways:
            gateway.wait_ready(READY_S)
        backends = [
            Backend(each.config["kafka"]["host"], each.config["kafka"]["port"], each.config["http"]["port"])
            for each in gateways
        ]
        file = folder / "haproxy.cfg"
        file.write_text(single_address_config(backends, HERE, port))
        haproxy = ChildProcess("haproxy", folder / "haproxy.log")
        stack.callback(haproxy.kill)
        haproxy.start(["haproxy", "-db", "-f", str(file)])
        address = f"{HERE}:{port}"
        until(lambda: _answers(address), "haproxy finds the gateways")
        yield address


def _gateway(lab: Lab, folder: Path, node: Node, namespace: str, port: int) -> GatewayProcess:
    assert lab.network is not None
    host = lab.network.host(node)
    sections: dict[str, dict[str, Any]] = {
        "kafka": {
            "host": host, "proxy_protocol": True, "trusted_proxies": ANYWHERE, "single_address": True,
            "advertised_host": HERE, "advertised_port": port,
        },
        "http": {"host": host},
        "pulsar": {"namespace": namespace},
        "fleet": {"forwarding": {"host": host, "port": free_port(), "trusted_peers": ANYWHERE}},
    }  # fmt: skip
    service_url = lab.places.service_url(node.cluster, first=node.region)
    admin_url = lab.places.admin_url(node.cluster, first=node.region)
    gateway = GatewayProcess(folder / node.name, service_url, admin_url, sections)
    gateway.prefix = lab.network.enter(node)
    return gateway


def _answers(address: str) -> bool:
    try:
        with connected(address) as client:
            return bool(client.call("Metadata", 9, topics=[])["brokers"])
    except ConnectionClosedError:
        return False
