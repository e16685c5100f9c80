"""Addresses and free ports for the nodes of a topology: 127.0.N.x for its Nth region, or the same in another network.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from deploy.local.process import PORT_RANGE, StartError, is_free
from deploy.topology.description import Kind, Node, Topology
from deploy.topology.places import PORTS, Place, Places

HOST_PART = {Kind.ZOOKEEPER: 10, Kind.BOOKIE: 20, Kind.BROKER: 30, Kind.GATEWAY: 40, Kind.HAPROXY: 50}
LOOPBACK = "127.0"
EVERY_ADDRESS = ""
ATTEMPTS = 1_000


def host(topology: Topology, node: Node, network: str = LOOPBACK) -> str:
    return f"{network}.{topology.regions.index(node.region) + 1}.{HOST_PART[node.kind] + node.number}"


def choose(topology: Topology, file: Path, network: str = LOOPBACK) -> Places:
    """Choose free ports, or read those chosen before from `file`: a bookie is identified by its address and port."""
    if file.exists():
        kept = json.loads(file.read_text())
    else:
        free = _free_ports()
        kept = {node.name: _ports(topology, node, free) for node in topology.nodes}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept, indent=1))
    places = {node.name: Place(host(topology, node, network), kept[node.name]) for node in topology.nodes}
    return Places(topology, places)


def _ports(topology: Topology, node: Node, free: Iterator[int]) -> dict[str, int]:
    if node.kind is not Kind.HAPROXY:
        return {purpose: next(free) for purpose in PORTS[node.kind]}
    wanted = len(topology.of(Kind.GATEWAY, region=node.region)) + 1
    first = next(free)
    while not all(is_free(EVERY_ADDRESS, port) for port in range(first, first + wanted)):
        first = next(free)
    return {"client": first}


def _free_ports() -> Iterator[int]:
    """Free ports, each at most once. Bookies listen on every address, so each port must be free on all addresses."""
    # In steps of ten: haproxy uses the ports that follow its own.
    for port in random.sample(range(PORT_RANGE.start, PORT_RANGE.stop, 10), ATTEMPTS):
        if is_free(EVERY_ADDRESS, port):
            yield port
    raise StartError(f"no free port found in {ATTEMPTS} attempts")
