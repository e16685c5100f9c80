"""A topology as processes of this machine. Each region has addresses of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.local.cluster import addresses, commands
from deploy.local.cluster.detached import DetachedProcess
from deploy.local.process import StartError
from deploy.topology.description import Kind, Node, Topology, TopologyError
from deploy.topology.places import Places
from deploy.topology.setup import move_to_primary_regions, set_up

READY_TIMEOUT_S = 180.0
INITIALIZER_TIMEOUT_S = 120.0
POLL_S = 0.1
STAGES = ((Kind.ZOOKEEPER,), (Kind.BOOKIE, Kind.BROKER), (Kind.GATEWAY, Kind.HAPROXY))
"""The order of starting. Nodes of one stage start together."""

Report = Callable[[str], None]


class State(NamedTuple):
    node: Node
    address: str
    pid: int | None


class LocalCluster:
    """Identified by its folder: every object with the same folder sees and controls the same processes.

    `bound` processes end together with the process that started them, for tests. `network` has the first two bytes of
    the addresses, and `enter` the beginning of the command of a node that is to run in a network namespace.
    """

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        *,
        bound: bool = False,
        network: str = addresses.LOOPBACK,
        enter: Callable[[Node], Sequence[str]] = lambda node: (),
    ) -> None:
        self.topology = topology
        self.folder = folder.resolve()
        self._bound = bound
        self._network = network
        self._enter = enter
        self._places: Places | None = None
        self._processes = {node.name: DetachedProcess(node.name, self.folder / node.name) for node in topology.nodes}

    @property
    def places(self) -> Places:
        if self._places is None:
            self._places = addresses.choose(self.topology, self.folder / "ports.json", self._network)
        return self._places

    def up(self, report: Report = lambda text: None) -> None:
        """Start the processes that are not running. Raises StartError, SetupError, MissingToolError, ResolveError."""
        returns = self._lost_brokers()
        for kinds in STAGES:
            self._start([node for node in self.topology.nodes if node.kind in kinds], report)
            if Kind.ZOOKEEPER in kinds:
                self._initialize(report)
            elif Kind.BROKER in kinds:
                report("tenants, namespaces, racks")
                set_up(self.places)
                if returns:
                    move_to_primary_regions(self.places)

    def start(self, target: str, report: Report = lambda text: None) -> None:
        """Start the processes of a node or a region that were killed."""
        chosen = self.select(target)
        for kinds in STAGES:
            self._start([node for node in chosen if node.kind in kinds], report)

    def down(self) -> None:
        """Stop everything, gateways first. The data stays."""
        for kinds in reversed(STAGES):
            self._end([node for node in self.topology.nodes if node.kind in kinds])

    def stop(self, target: str) -> None:
        """Stop a node or a region, gateways first, as `down` does."""
        for kinds in reversed(STAGES):
            self._end([node for node in self.select(target) if node.kind in kinds])

    def kill(self, target: str) -> None:
        """SIGKILL a node, or all nodes of a region at the same time."""
        chosen = self.select(target)
        self.signal(target, signal.SIGKILL)
        for node in chosen:
            self._processes[node.name].wait_gone(READY_TIMEOUT_S)

    def signal(self, target: str, number: signal.Signals) -> None:
        for node in self.select(target):
            self._processes[node.name].signal(number)

    def states(self) -> list[State]:
        return [
            State(node, self.places.of(node).at(), self._processes[node.name].pid) for node in self.topology.nodes
        ]

    def delete(self) -> None:
        """Stop everything and delete the data."""
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def select(self, target: str) -> list[Node]:
        """The node of this name, or the nodes of the region of this name. Raises TopologyError."""
        chosen = [node for node in self.topology.nodes if target in (node.name, node.region)]
        if not chosen:
            known = [*self.topology.regions, *(node.name for node in self.topology.nodes)]
            raise TopologyError(f"{self.topology.name} has no {target}; it has {', '.join(known)}")
        return chosen

    def _start(self, nodes: Iterable[Node], report: Report) -> None:
        missing = [node for node in nodes if not self._processes[node.name].running]
        if missing:
            report(" ".join(node.name for node in missing))
        for node in missing:
            process = self._processes[node.name]
            command = [*self._enter(node), *commands.prepare(self.places, node, process.folder)]
            process.start(command, commands.environment(node), bound=self._bound)
        deadline = time.monotonic() + READY_TIMEOUT_S
        for node in missing:
            self._wait_ready(node, deadline)

    def _lost_brokers(self) -> bool:
        """Some brokers run and others do not."""
        running = [self._processes[node.name].running for node in self.topology.of(Kind.BROKER)]
        return any(running) and not all(running)

    def _wait_ready(self, node: Node, deadline: float) -> None:
        process = self._processes[node.name]
        while not commands.is_ready(self.places, node):
            if not process.running:
                raise StartError(f"{node.name} ended while starting.\n{process.log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{node.name} was not ready in time.\n{process.log_tail()}")
            time.sleep(POLL_S)

    def _end(self, nodes: list[Node]) -> None:
        for node in nodes:
            self._processes[node.name].signal(signal.SIGTERM)
        for node in nodes:
            self._processes[node.name].stop()

    def _initialize(self, report: Report) -> None:
        """Initialize the metadata of each cluster, once."""
        for cluster in self.topology.clusters:
            done = self.folder / f"{cluster}.initialized"
            if done.exists():
                continue
            report(f"metadata of cluster {cluster}")
            log = self.folder / f"{cluster}.initializer.log"
            with log.open("wb") as output:
                command = commands.initializer(self.places, cluster)
                code = subprocess.run(
                    command, stdout=output, stderr=subprocess.STDOUT, timeout=INITIALIZER_TIMEOUT_S, check=False
                ).returncode
            if code != 0:
                raise StartError(f"the metadata of cluster {cluster} could not be made ({code}): see {log}")
            done.touch()


def resident_mb(pid: int) -> int | None:
    """Memory of a process in MiB, None if the system does not show it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
