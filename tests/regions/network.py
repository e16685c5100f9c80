"""A network in which a trial can cut any cable: each node has a network namespace, and this process routes between
them.

The trial runs in a namespace of its own (`enter_own`). Packets between nodes are routed here, and a rule drops them
without any notice. The namespaces disappear with the trial's last process.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.local.cluster.addresses import host
from deploy.topology.description import Node, Topology

PREFIX = "10.213"
HERE = f"{PREFIX}.0.1"
"""The address of clients; every node reaches it."""
INSIDE = "KAFKA_GATEWAY_REGIONS_NETWORK"
OWN = ["unshare", "--net", "--mount"]
TIMEOUT_S = 20
FIRST_STEPS = (
    ("ip", "link", "set", "lo", "up"),
    ("mkdir", "-p", "/run/netns"),
    ("mount", "-t", "tmpfs", "none", "/run/netns"),
    # There is no DNS server here: Java would wait seconds for every name.
    ("mount", "--bind", "/dev/null", "/etc/resolv.conf"),
)


def enter_own(arguments: Sequence[str]) -> str | None:
    """Run this program again in a network namespace of its own, if it is not in one already; or return why that fails.
    """
    if INSIDE in os.environ:
        return None
    reason = _why_not()
    if reason is None:
        os.environ[INSIDE] = "1"
        os.execvp(OWN[0], [*OWN, sys.executable, "-m", "tests.regions", *arguments])
    return reason


def _why_not() -> str | None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        return "network namespaces need root, and the commands ip and unshare"
    steps = " && ".join(" ".join(step) for step in (*FIRST_STEPS, ("ip", "netns", "add", "probe")))
    probe = subprocess.run([*OWN, "sh", "-c", steps], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return None if probe.returncode == 0 else f"network namespaces are not permitted: {probe.stderr.strip()}"


def prepare() -> None:
    """Set up the trial's own namespace, once."""
    for step in FIRST_STEPS:
        _run(*step)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


class Network:
    """The network of one topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def enter(self, node: Node) -> list[str]:
        return ["ip", "netns", "exec", node.name]

    def host(self, node: Node) -> str:
        return host(self._topology, node, PREFIX)

    def connect(self) -> None:
        """The interface on this side has the node's name, the other one is called cable."""
        for node in self._topology.nodes:
            name, address, there = node.name, self.host(node), ("ip", "-n", node.name)
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", name, "type", "veth", "peer", "name", "cable", "netns", name)
            _run("ip", "address", "add", f"{HERE}/32", "dev", name)
            _run("ip", "link", "set", name, "up")
            _run("ip", "route", "add", f"{address}/32", "dev", name, "src", HERE)
            _run(*there, "address", "add", f"{address}/32", "dev", "cable")
            for interface in ("lo", "cable"):
                _run(*there, "link", "set", interface, "up")
            _run(*there, "route", "add", HERE, "dev", "cable")
            _run(*there, "route", "add", "default", "via", HERE, "dev", "cable")

    def disconnect(self) -> None:
        for node in self._topology.nodes:
            # Delete the interface explicitly: the kernel removes a namespace with delay.
            _run("ip", "link", "delete", node.name)
            _run("ip", "netns", "delete", node.name)

    @contextmanager
    def cut(self, some: Iterable[Node], others: Iterable[Node]) -> Iterator[None]:
        """Drop all packets between the two groups, in both directions, during the block."""
        pairs = [(self.host(one), self.host(other)) for one, other in itertools.product(some, others)]
        rules = [("from", source, "to", target, "blackhole") for pair in pairs for source, target in (pair, pair[::-1])]
        for rule in rules:
            _run("ip", "rule", "add", *rule)
        try:
            yield
        finally:
            for rule in rules:
                _run("ip", "rule", "delete", *rule)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)
