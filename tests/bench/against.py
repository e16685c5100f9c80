"""Two commits of the gateway, measured in turns on one Pulsar: `python -m tests.bench --against REV`.

Each case is measured with both commits, in a different order in every round. The ratios of the rounds show whether a
change costs processor time: other load of the machine affects both sides.
"""

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.local.standalone import PulsarStandalone
from tests.bench.process import cpu_seconds
from tests.bench.servers import HEAP_MB, create_topic, end_offset, run_load
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.names import unique_topic

BEFORE, AFTER = "before", "after"
ROUNDS = 5
SPAN_S = 1.5
WARM_UP_S = 0.3
TAIL_BATCHES = 1_000
PRODUCE = [(1, 200), (10, 20), (10, 200), (160, 20), (160, 200)]
"""Records of a batch, requests in flight."""
TAIL = [10, 160]
COMMITS_IN_FLIGHT = 20
FIGURE = "cpu_us_per_batch"

Gateways = Mapping[str, GatewayProcess]
Ratios = dict[str, list[tuple[float, float]]]
"""By case: µs of CPU a batch, before and after, for each round."""


def compare(revision: str, rounds: int = ROUNDS) -> None:
    """Print the table. Raises RuntimeError when the revision does not exist, or a load fails."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-gateway-against-"))
    try:
        with sources_of(revision, folder / "sources") as sources, _running(folder, sources) as gateways:
            found: Ratios = {}
            topics = {name: _topics(gateway) for name, gateway in gateways.items()}
            for number in range(rounds):
                _measure_all(gateways, topics, found, swapped=bool(number % 2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _show(revision, found)


@contextmanager
def sources_of(revision: str, folder: Path) -> Iterator[Path]:
    """A work tree of the revision. It runs with the packages that are installed for this one."""
    _git("worktree", "add", "--detach", str(folder), revision)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def _running(folder: Path, sources: Path) -> Iterator[Gateways]:
    """Each gateway has a namespace of its own; otherwise they would be one fleet."""
    pulsar = PulsarStandalone(folder / "pulsar", heap_mb=HEAP_MB)
    gateways: dict[str, GatewayProcess] = {}
    try:
        pulsar.start()
        pulsar.wait_ready()
        for name, repository in ((BEFORE, sources), (AFTER, REPOSITORY)):
            overrides = {"pulsar": {"namespace": name}}
            gateway = GatewayProcess(folder / name, pulsar.service_url, pulsar.admin_url, overrides)
            gateway.sources = repository
            gateways[name] = gateway
            gateway.start()
            gateway.wait_ready()
        yield gateways
    finally:
        for gateway in gateways.values():
            gateway.stop()
        pulsar.kill()


def _topics(gateway: GatewayProcess) -> dict[int, str]:
    """A topic for each number of records in a batch, with batches to read."""
    topics = {}
    for size in sorted({size for size, _ in PRODUCE} | {*TAIL}):
        topic = topics[size] = unique_topic("against")
        create_topic(gateway.bootstrap, topic)
        run_load(
            "kafka.produce", bootstrap=gateway.bootstrap, topic=topic, batch_records=size, in_flight=20, seconds=0,
            warm_up_s=0, batches=TAIL_BATCHES,
        )  # fmt: skip
    return topics


def _measure_all(gateways: Gateways, topics: Mapping[str, dict[int, str]], found: Ratios, *, swapped: bool) -> None:
    order = [AFTER, BEFORE] if swapped else [BEFORE, AFTER]
    for size, in_flight in PRODUCE:
        costs = {name: _produce(gateways[name], topics[name][size], size, in_flight) for name in order}
        found.setdefault(f"produce {size} from {in_flight}", []).append((costs[BEFORE], costs[AFTER]))
    for size in TAIL:
        costs = {name: _tail(gateways[name], topics[name][size], size) for name in order}
        found.setdefault(f"tail {size}", []).append((costs[BEFORE], costs[AFTER]))
    costs = {name: _commit(gateways[name], topics[name][1]) for name in order}
    found.setdefault(f"commits from {COMMITS_IN_FLIGHT}", []).append((costs[BEFORE], costs[AFTER]))


def _produce(gateway: GatewayProcess, topic: str, size: int, in_flight: int) -> float:
    return _cost(
        gateway, "kafka.produce", topic=topic, batch_records=size, in_flight=in_flight, seconds=SPAN_S,
        warm_up_s=WARM_UP_S,
    )  # fmt: skip


def _tail(gateway: GatewayProcess, topic: str, size: int) -> float:
    end = end_offset(gateway.bootstrap, topic)
    return _cost(
        gateway, "kafka.consume", topic=topic, batch_records=size, start=end - TAIL_BATCHES * size, end=end,
        seconds=SPAN_S, warm_up_s=WARM_UP_S,
    )  # fmt: skip


def _commit(gateway: GatewayProcess, topic: str) -> float:
    return _cost(
        gateway, "groups.commits", topic=topic, in_flight=COMMITS_IN_FLIGHT, seconds=SPAN_S, warm_up_s=WARM_UP_S
    )


def _cost(gateway: GatewayProcess, load: str, **arguments: Any) -> float:
    """µs of the gateway's CPU a batch."""
    before_s = cpu_seconds(gateway.pid)
    result = run_load(load, bootstrap=gateway.bootstrap, **arguments)
    batches: float = max(1, result["total_batches"])
    return (cpu_seconds(gateway.pid) - before_s) / batches * 1e6


def _show(revision: str, found: Ratios) -> None:
    table = Table(title=f"CPU of the gateway, µs a batch or commit: {revision} and this tree", title_justify="left")
    for heading in ("case", "before", "after", "ratio", "of single rounds"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for case, pairs in found.items():
        ratios = sorted(after / before for before, after in pairs if before)
        before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        table.add_row(case, f"{before:.1f}", f"{after:.1f}", f"{statistics.median(ratios):.3f}", spread)
    Console().print(table)
