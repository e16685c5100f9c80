"""The resources of a gateway under load, and after its clients have disconnected."""

from __future__ import annotations

import ipaddress
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.integration.servers import metric, resident_bytes
from tests.support.gateway_process import GatewayProcess

SAMPLE_S = 15.0
MB = 1024 * 1024
LISTENING = "0.0.0.0:0"
"""The remote address of a listener."""


@dataclass(frozen=True)
class Sample:
    at_s: float
    resident_mb: float
    sockets: int
    tasks: int


def sample(gateway: GatewayProcess) -> Sample:
    """Open sockets, without those of /metrics itself."""
    tasks = int(metric(gateway, "kafka_gateway_tasks"))
    return Sample(time.monotonic(), resident_bytes(gateway.pid) / MB, sockets(gateway.pid), tasks)


def sockets(pid: int) -> int:
    return len(_socket_inodes(pid))


class Process(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def bootstrap(self) -> str: ...


def client_sockets(gateway: Process, others: Iterable[Process]) -> int:
    """Connections that it accepted from anybody but other gateways. Half-closed ones count, too."""
    accepted = {end.remote for end in _ends(gateway.pid) if end.local == gateway.bootstrap and end.remote != LISTENING}
    return len(accepted - {end.local for other in others for end in _ends(other.pid)})


class End(NamedTuple):
    """One end of a TCP connection over IPv4, as host:port."""

    local: str
    remote: str


def _ends(pid: int) -> list[End]:
    """Read from /proc/PID/net/tcp: `sl local_address rem_address st ... inode`, addresses as hexadecimal digits."""
    inodes = _socket_inodes(pid)
    rows = (line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:])
    return [End(_address(row[1]), _address(row[2])) for row in rows if row[9] in inodes]


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    return f"{ipaddress.IPv4Address(int(host, 16).to_bytes(4, sys.byteorder))}:{int(port, 16)}"


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed in the meantime
            name = each.readlink().name
            if name.startswith("socket:"):
                inodes.add(name.removeprefix("socket:[").removesuffix("]"))
    return inodes


class Sampler:
    def __init__(self, gateway: GatewayProcess) -> None:
        self.samples: list[Sample] = []
        self._gateway = gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.samples.append(sample(self._gateway))


def slope_mb_per_hour(samples: Sequence[Sample]) -> tuple[float, float]:
    """The growth of resident memory by least squares, and its standard error."""
    times = [each.at_s / 3600 for each in samples]
    sizes = [each.resident_mb for each in samples]
    fit = statistics.linear_regression(times, sizes)
    residuals = [size - fit.intercept - fit.slope * at for at, size in zip(times, sizes, strict=True)]
    spread = sum((at - statistics.fmean(times)) ** 2 for at in times)
    error = (sum(each**2 for each in residuals) / max(1, len(samples) - 2) / spread) ** 0.5
    return fit.slope, error


@dataclass
class LogFindings:
    """Lines of gateways' logs that should not be there."""

    failed_requests: int = 0
    failed_tasks: int = 0
    stalls: int = 0
    longest_stall_cpu_ms: int = 0
    longest_stall_stack: object = None
    """Where it was found, innermost call first."""

    def read(self, log: Path) -> None:
        for line in log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                self._take(json.loads(line))

    def _take(self, entry: dict[str, object]) -> None:
        event, cpu_ms = entry.get("event"), entry.get("cpu_ms", 0)
        self.failed_requests += event == "request failed"
        self.failed_tasks += event == "background task failed"
        if event == "event loop stalled" and isinstance(cpu_ms, int):
            self.stalls += 1
            if cpu_ms > self.longest_stall_cpu_ms:
                self.longest_stall_cpu_ms, self.longest_stall_stack = cpu_ms, entry.get("stack")
