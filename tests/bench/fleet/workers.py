"""What several workers do beside a Pulsar that costs next to nothing, so that the gateways are the limit."""

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.process import free_ports
from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet.costs import create
from tests.bench.fleet.records_for_nothing import FreePulsar, records_for_nothing
from tests.bench.process import children, cpu_seconds
from tests.bench.servers import run_load
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

WORKERS = (1, 2, 4)
PARTITIONS = 64
EACH_LEADS = 4
"""The number of partitions of each worker that are written to."""
LOADS = ((10, 20), (1_000, 5))
"""Records of a batch, and requests in flight to each partition, over connections with five each."""
ROUNDS = 3
SPAN_S, WARM_UP_S = 2.0, 0.5
LIMIT_S = 60.0
PATIENT = {"lease_ms": 60_000, "dead_after_ms": 70_000, "cut_off_ms": 80_000}
"""More processes than cores: none of them must be taken for dead."""
HEADINGS = (
    "workers", "batches/s", "batches a second of the workers' CPU", "of one worker's", "cores used: workers",
    "load", "Pulsar without records",
)  # fmt: skip
Target = tuple[str, str, int]
"""Bootstrap address, topic, partition."""


class _Workers(NamedTuple):
    gateway: GatewayProcess
    targets: list[Target]
    """As many for each worker."""

    def cpu_seconds(self) -> float:
        """Of all workers together."""
        pid = self.gateway.pid  # a single worker, or the process that watches over several
        return sum(map(cpu_seconds, [pid, *children(pid)]))


def workers(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """The fleets take turns, so that other load of the machine affects all."""
    namespaces = {count: unique_topic(f"workers-{count}") for count in WORKERS}
    with ExitStack() as stack:
        fake = stack.enter_context(records_for_nothing(pulsar, [f"kafka/{each}" for each in namespaces.values()]))
        fleets = {
            count: stack.enter_context(_running(work_dir, fake, namespace, count))
            for count, namespace in namespaces.items()
        }
        for size, in_flight in LOADS:
            measured: dict[int, list[tuple[float, ...]]] = {count: [] for count in WORKERS}
            for _ in range(ROUNDS):
                for count, fleet in fleets.items():
                    measured[count].append(_measure(fleet, fake.process, size, in_flight))
            for count, rounds in measured.items():
                rate, of_cpu, *cores = map(statistics.median, zip(*rounds, strict=True))
                ratio = statistics.median(each[1] / one[1] for each, one in zip(rounds, measured[1], strict=True))
                title = f"Workers beside a Pulsar that costs nothing: batches of {size:,} records"
                figures.add(title, HEADINGS, [str(count), rate, of_cpu, ratio, *cores])


def _measure(fleet: _Workers, fake: "subprocess.Popen[str]", batch_records: int, in_flight: int) -> tuple[float, ...]:
    """See HEADINGS, without the ratio."""
    used_s, fake_s = fleet.cpu_seconds(), cpu_seconds(fake.pid)
    result = run_load(
        "kafka.produce_to_each", targets=fleet.targets, batch_records=batch_records, in_flight=in_flight,
        seconds=SPAN_S, warm_up_s=WARM_UP_S,
    )  # fmt: skip
    took_s = result["total_batches"] / result["batches_per_s"]
    used_s, fake_s = fleet.cpu_seconds() - used_s, cpu_seconds(fake.pid) - fake_s
    return (
        result["batches_per_s"], result["total_batches"] / used_s, used_s / took_s, result["generator_busy"],
        fake_s / took_s,
    )  # fmt: skip


@contextmanager
def _running(work_dir: Path, fake: FreePulsar, namespace: str, count: int) -> Iterator[_Workers]:
    """`kafka-gateway serve --workers`: each worker's ports are one higher than the last worker's."""
    ports = free_ports(2 * count)
    sections: dict[str, dict[str, Any]] = {
        "pulsar": {"namespace": namespace}, "kafka": {"host": HOST, "port": ports[0]},
        "http": {"host": HOST, "port": ports[count]}, "fleet": PATIENT,
    }  # fmt: skip
    gateway = GatewayProcess(work_dir / namespace, fake.service_url, fake.admin_url, sections, workers=count)
    gateway.start()
    try:
        gateway.wait_ready()
        topic = unique_topic("spread")
        create(gateway.bootstrap, topic, PARTITIONS)
        yield _Workers(gateway, _targets(gateway.bootstrap, topic, count))
    finally:
        gateway.stop()


def _targets(bootstrap: str, topic: str, count: int) -> list[Target]:
    """The first partitions that each of so many workers leads. Raises TimeoutError."""
    end_s = time.monotonic() + LIMIT_S
    with connected(bootstrap) as client:
        while time.monotonic() < end_s:
            answer = client.call("Metadata", 9, topics=[{"name": topic}])
            led: dict[str, list[Target]] = {f"{each['host']}:{each['port']}": [] for each in answer["brokers"]}
            addresses = dict(zip((each["node_id"] for each in answer["brokers"]), led, strict=True))
            for each in answer["topics"][0]["partitions"]:
                address = addresses[each["leader_id"]]
                led[address].append((address, topic, each["partition_index"]))
            if len(led) == count and all(len(each) >= EACH_LEADS for each in led.values()):
                return [target for each in led.values() for target in each[:EACH_LEADS]]
            time.sleep(0.1)
    raise TimeoutError(f"{count} workers do not share the partitions out: {led}")
