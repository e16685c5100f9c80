"""Two clusters in one gateway: how long the requests of one take while the other one floods the gateway, and which part
of this is the gateway's own work."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.kafka import KafkaBroker
from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet.records_for_nothing import records_for_nothing
from tests.bench.process import cpu_seconds
from tests.bench.security.gateways import TAIL_BATCHES, fill, gateway_on, listener_address
from tests.bench.servers import HEAP_MB, create_topic, run_load
from tests.support.gateway_process import HOST, REPOSITORY
from tests.support.names import unique_topic
from tests.support.raw_client import connected

QUIET, FLOOD = "quiet", "flood"
RATE, SPAN_S = 50, 4.0
"""Records a second of the quiet cluster."""
FLOOD_S = SPAN_S + 3.0
"""The flood begins before the measurement, and ends after it."""
FLOODS_BEFORE_S = 1.5
ROUNDS = 4
SIZE = 160
PARTITIONS = 200
"""The number of partitions in a metadata response."""
PRODUCE, FETCH, METADATA, CONNECTIONS = "produce", "fetch", "metadata", "connections"
LIMITED = "produce, with a quota"
QUOTA_BYTES_PER_S = 5_000_000.0
ALONE = "none"
LEAST_PRIORITY = ("nice", "-n", "19")
"""The flood's clients have machines of their own, where it matters. Here they take only what is left of this one."""


class _Place(NamedTuple):
    """Where a flood goes to."""

    pid: int
    address: str
    topic: str


def tenants(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """The quiet cluster alone, with a flood of the other cluster, and with the same flood to another gateway.

    The last case shows the cost of sharing a machine and a Pulsar.
    """
    with ExitStack() as stack:
        both = stack.enter_context(gateway_on(work_dir, pulsar, **_clusters()))
        other = stack.enter_context(gateway_on(work_dir, pulsar))
        quiet, topic = listener_address(both, QUIET), unique_topic("quiet")
        create_topic(quiet, topic)
        same = _place(both.pid, listener_address(both, FLOOD))
        elsewhere = _place(other.pid, other.bootstrap)
        for what in (PRODUCE, FETCH, METADATA, CONNECTIONS, LIMITED):
            if what == LIMITED:
                for place in (same, elsewhere):
                    _limit(place.address)
            rounds = [_round(what, quiet, topic, [same, elsewhere][:: -1 if number % 2 else 1], same)
                      for number in range(ROUNDS)]  # fmt: skip
            _add_row(figures, what, rounds)
    _without_pulsar(work_dir, pulsar, figures)
    _on_kafka(work_dir, figures)
    for what in (ALONE, PRODUCE, FETCH, METADATA, CONNECTIONS):
        found = run_load("flood.waiting", flood=what)
        figures.add(
            "Work of the gateway before it answers the quiet cluster, ms of processor time", ("flood", "p50", "p99"),
            [what, found["p50"], found["p99"]],
        )  # fmt: skip


def _without_pulsar(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Writes are what Pulsar does most of the work for: here it does none, so the gateway is all that is shared."""
    sections = _clusters()
    namespaces = [each["namespace"] for each in sections["kafka"]["clusters"]]
    with records_for_nothing(pulsar, namespaces) as free, gateway_on(work_dir, free, **sections) as gateway:
        quiet, flood = listener_address(gateway, QUIET), listener_address(gateway, FLOOD)
        topics = {address: unique_topic("free") for address in (quiet, flood)}
        for address, topic in topics.items():
            create_topic(address, topic)
        place = _Place(gateway.pid, flood, topics[flood])
        alone, flooded = [], []
        for _ in range(ROUNDS):
            alone.append(_latency(quiet, topics[quiet]))
            with _flooding(PRODUCE, place):
                flooded.append(_latency(quiet, topics[quiet]))
    _add_pairs(figures, "The same beside a Pulsar that keeps no records", PRODUCE, alone, flooded)


def _on_kafka(work_dir: Path, figures: Figures) -> None:
    """The same floods of a Kafka broker: what its other clients feel there."""
    broker = KafkaBroker(work_dir / "kafka", heap_mb=HEAP_MB)
    try:
        broker.start()
        broker.wait_ready()
        topic = unique_topic("quiet")
        create_topic(broker.bootstrap, topic)
        place = _place(broker.pid, broker.bootstrap)
        _latency(broker.bootstrap, topic)  # its first requests are slow
        for what in (PRODUCE, FETCH, METADATA, CONNECTIONS):
            alone, flooded = [], []
            for _ in range(ROUNDS):
                alone.append(_latency(broker.bootstrap, topic))
                with _flooding(what, place):
                    flooded.append(_latency(broker.bootstrap, topic))
            _add_pairs(figures, "The same floods of one Apache Kafka broker", what, alone, flooded)
    finally:
        broker.kill()


def _add_pairs(
    figures: Figures, where: str, what: str, alone: list[dict[str, float]], flooded: list[dict[str, float]]
) -> None:
    p50, p99, p50_flooded, p99_flooded = (
        statistics.median(each[name] for each in rounds) for rounds in (alone, flooded) for name in ("p50", "p99")
    )
    figures.add(
        f"{where}: single records of one, ms, while the other floods",
        ("flood", "p50 alone", "p99 alone", "p50, flooded", "p99, flooded", "p99, flooded / alone"),
        [what, p50, p99, p50_flooded, p99_flooded,
         statistics.median(one["p99"] / other["p99"] for one, other in zip(flooded, alone, strict=True))],
    )  # fmt: skip


def _limit(address: str) -> None:
    """A quota for all clients of the cluster."""
    entity = [{"entity_type": "client-id", "entity_name": None}]
    quota = [{"key": "producer_byte_rate", "value": QUOTA_BYTES_PER_S, "remove": False}]
    with connected(address) as client:
        answer = client.call("AlterClientQuotas", 0, entries=[{"entity": entity, "ops": quota}], validate_only=False)
    [row] = answer["entries"]
    if row["error_code"]:
        raise RuntimeError(f"the quota was refused with error {row['error_code']}")


class _Round(NamedTuple):
    alone: dict[str, float]
    same: dict[str, float]
    elsewhere: dict[str, float]
    busy: float
    """CPU use of the flooded gateway, 1 is a core."""


def _round(what: str, quiet: str, topic: str, places: list[_Place], same: _Place) -> _Round:
    """p50 and p99 in ms, for each case."""
    alone, found, busy = _latency(quiet, topic), {}, 0.0
    for place in places:
        before = cpu_seconds(place.pid)
        with _flooding(what, place):
            found[place is same] = _latency(quiet, topic)
        if place is same:
            busy = (cpu_seconds(place.pid) - before) / FLOOD_S
    return _Round(alone, found[True], found[False], busy)


def _latency(bootstrap: str, topic: str) -> dict[str, float]:
    result = run_load("kafka.latency", bootstrap=bootstrap, topic=topic, rate=RATE, seconds=SPAN_S)
    found: dict[str, float] = result["produce_ms"]
    return found


@contextmanager
def _flooding(what: str, place: _Place) -> Iterator[None]:
    name, arguments = _load(what, place)
    command = [*LEAST_PRIORITY, sys.executable, "-W", "ignore", "-m", "tests.bench.loads", name, json.dumps(arguments)]
    flood = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        try:
            flood.wait(FLOODS_BEFORE_S)
        except subprocess.TimeoutExpired:
            yield
        _, complaint = flood.communicate(timeout=10 * FLOOD_S)
        if flood.returncode:
            raise RuntimeError(f"{name}: {complaint[-2000:]}")
    finally:
        flood.kill()
        flood.communicate()


def _load(what: str, place: _Place) -> tuple[str, dict[str, Any]]:
    common: dict[str, Any] = {"bootstrap": place.address, "seconds": FLOOD_S}
    records = {"topic": place.topic, "batch_records": SIZE, "warm_up_s": 0.1}
    return {
        PRODUCE: ("kafka.produce", common | records | {"in_flight": 200}),
        LIMITED: ("kafka.produce", common | records | {"in_flight": 200}),
        FETCH: ("kafka.consume", common | records | {"start": 0, "end": TAIL_BATCHES * SIZE}),
        METADATA: ("flood.metadata", common | {"connections": 10}),
        CONNECTIONS: ("flood.connections", common),
    }[what]


def _add_row(figures: Figures, what: str, rounds: list[_Round]) -> None:
    def median(values: list[float]) -> float:
        return statistics.median(values)

    figures.add(
        "Two clusters in one gateway: p99 of single records of one, ms, while the other floods",
        ("flood", "p50 alone", "p99 alone", "p99, another gateway is flooded", "p99, flooded", "flooded / alone",
         "flooded / another gateway is", "gateway busy"),
        [what, median([each.alone["p50"] for each in rounds]), median([each.alone["p99"] for each in rounds]),
         median([each.elsewhere["p99"] for each in rounds]), median([each.same["p99"] for each in rounds]),
         median([each.same["p99"] / each.alone["p99"] for each in rounds]),
         median([each.same["p99"] / each.elsewhere["p99"] for each in rounds]),
         median([each.busy for each in rounds])],
    )  # fmt: skip


def _clusters() -> dict[str, dict[str, Any]]:
    tenant = unique_topic("tenants")
    kafka = {
        "host": HOST,
        "port": free_port(),
        "clusters": [{"namespace": f"{tenant}/{name}", "create_namespace": True} for name in (QUIET, FLOOD)],
        "listeners": [
            {"name": name, "host": HOST, "port": free_port(), "cluster": f"{tenant}/{name}"} for name in (QUIET, FLOOD)
        ],
    }
    return {"kafka": kafka, "fleet": {"forwarding": {"host": HOST, "port": free_port()}}}


def _place(pid: int, address: str) -> _Place:
    topic = unique_topic("flood")
    create_topic(address, topic)
    fill(address, topic, SIZE)
    create_topic(address, unique_topic("many"), PARTITIONS)
    return _Place(pid, address, topic)
