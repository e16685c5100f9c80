"""Servers for a single test, because it stops, kills or configures them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.native import TIMEOUT_S, wait_for
from tests.integration.secured_pulsar import SecuredPulsar
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

MAX_STALL_CPU_MS = 100

Server = TypeVar("Server", bound=PulsarStandalone | KafkaBroker | GatewayProcess)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Started and ready at the beginning of the block, and stopped at its end."""
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def gateway_on(pulsar: PulsarStandalone, work_dir: Path, /, **sections: dict[str, Any]) -> GatewayProcess:
    """A gateway that is not started yet; ``sections`` are those of its configuration."""
    if isinstance(pulsar, SecuredPulsar):
        sections["pulsar"] = pulsar.gateway_section() | sections.get("pulsar", {})
    return GatewayProcess(work_dir, pulsar.service_url, pulsar.admin_url, sections)


def lone_gateway_on(pulsar: PulsarStandalone, work_dir: Path, **sections: dict[str, Any]) -> GatewayProcess:
    """A gateway that is not started yet. It is the only one of its namespace, so it leads everything."""
    return gateway_on(pulsar, work_dir, pulsar={"namespace": unique_topic("alone")}, **sections)


def metric(gateway: GatewayProcess, name: str, /, **labels: str) -> float:
    """The sum of a metric's samples that have these labels; 0 if there are none."""
    status, text = gateway.get("/metrics", TIMEOUT_S)
    assert status == 200
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())


def events(gateway: GatewayProcess, name: str) -> list[dict[str, Any]]:
    """Lines of its log."""
    lines = (line for line in gateway.log_path.read_text().splitlines() if name in line and line.startswith("{"))
    return [event for event in map(json.loads, lines) if event["event"] == name]


def long_stalls(gateway: GatewayProcess) -> list[dict[str, Any]]:
    """Reports of an event loop that worked for too long without a pause. Waiting for a busy machine does not count."""
    return [stall for stall in events(gateway, "event loop stalled") if stall["cpu_ms"] > MAX_STALL_CPU_MS]


def await_fleet(gateways: Sequence[GatewayProcess]) -> None:
    """Wait until all know each other: a gateway is ready as soon as it knows itself."""
    for each in gateways:
        known = partial(metric, each, "kafka_gateway_fleet_members")
        wait_for(lambda: known() == len(gateways), "the gateways know each other")  # noqa: B023


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
