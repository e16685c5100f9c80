"""What is profiled: the cases of `make bench` and `make fleet` that are furthest from their goals."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.bench.cold_parts import RECORDS, read_all, write_all
from tests.bench.fleet.costs import DIRECT, TAIL_BATCHES, two_gateways
from tests.bench.loads import java_tools, native_clients
from tests.bench.loads.meter import Result
from tests.bench.plan import Plan
from tests.bench.profile.cores import Done, by_load, by_process
from tests.bench.report import TARGET_NAMES
from tests.bench.servers import Servers, create_topic, end_offset, pulsar_topic, run_load
from tests.support.names import unique_topic

PRODUCE = ((10, 20), (160, 20), (160, 200), (1_000, 20))
"""Records of a batch, requests in flight."""
BATCH_RECORDS = (10, 160, 1_000)
SPAN_S, WARM_UP_S = 4.0, 0.3
STORED_BYTES = Plan().catch_up_bytes
STORED_SMALL_BATCHES = Plan().small_catch_up_batches
COMPILED_AFTER_S = 12.0
"""Pulsar needs half as much for a batch when its compiler has seen so long what is read from the start."""
TOOL_RECORDS = Plan().tool_records
LATENCY_RATE, LATENCY_S = 100, 8.0
PARTITIONS = 1_000
GATEWAY, LEADER, PULSAR, KAFKA = "gateway", "leader behind it", "Pulsar", "Kafka"
BEHIND = {"gateway": (GATEWAY, PULSAR), "pulsar": (PULSAR,), "kafka": (KAFKA,)}
"""The servers that do the work of each target."""
Run = Callable[[], Done]


class Case(NamedTuple):
    name: str
    through: str
    unit: str
    run: Run
    prepare: Callable[[], dict[str, int]]
    """Called before each run. Returns the process ids of the servers, by name."""
    gateways: tuple[str, ...] = ()
    """The servers to be sampled."""


def _case(servers: Servers, target: str, name: str, unit: str, run: Run, *, anew: bool = False) -> Case:
    """`anew`: a gateway that has just started."""

    def prepare() -> dict[str, int]:
        if anew:
            servers.restart_gateway()
        pids = {GATEWAY: servers.gateway.pid, PULSAR: servers.pulsar.pid, KAFKA: servers.kafka.pid}
        return {each: pids[each] for each in BEHIND[target]}

    return Case(name, TARGET_NAMES[target], unit, run, prepare, (GATEWAY,) if target == "gateway" else ())


def _spanning(load: Callable[..., Result]) -> Run:
    return lambda: by_load(load(seconds=SPAN_S, warm_up_s=WARM_UP_S))


def _topic(servers: Servers, target: str) -> str:
    topic = unique_topic("profile")
    servers.create_topic(target, topic)
    return topic


def _produce(servers: Servers) -> Iterator[Case]:
    url = servers.pulsar.service_url
    for size, in_flight in PRODUCE:
        for target in ("gateway", "kafka", "pulsar"):
            topic, load = _topic(servers, target), partial(run_load, batch_records=size, in_flight=in_flight)
            if target == "pulsar":
                load = partial(load, "pulsar.produce", service_url=url, topic=pulsar_topic(topic))
            else:
                load = partial(load, "kafka.produce", bootstrap=servers.bootstrap(target), topic=topic)
            yield _case(servers, target, f"produce {size:,} from {in_flight}", "batch", _spanning(load))


def _from_start(servers: Servers) -> Iterator[Case]:
    """A topic that is larger than the gateway's memory for it, again and again."""
    bootstrap = servers.bootstrap("gateway")
    for size in BATCH_RECORDS:
        name, topic = f"read {size:,} from the start", _topic(servers, "gateway")
        batches = STORED_SMALL_BATCHES if size == 10 else STORED_BYTES // (110 * size)
        run_load(
            "kafka.produce", bootstrap=bootstrap, topic=topic, batch_records=size, in_flight=200, seconds=0,
            warm_up_s=0, batches=batches,
        )  # fmt: skip
        servers.restart_gateway()
        load = partial(run_load, batch_records=size, end=batches * size)
        direct = partial(
            load, "pulsar.consume", service_url=servers.pulsar.service_url, topic=pulsar_topic(topic)
        )
        compiled_at_s = time.monotonic() + COMPILED_AFTER_S
        while time.monotonic() < compiled_at_s:
            direct()
        consume = partial(load, "kafka.consume", bootstrap=bootstrap, topic=topic, start=0)
        yield _case(servers, "gateway", name, "batch", _spanning(consume))
        yield _case(servers, "pulsar", name, "batch", partial(_loaded, direct))


def _loaded(load: Callable[[], Result]) -> Done:
    return by_load(load())


def _tools(servers: Servers) -> Iterator[Case]:
    for target in ("gateway", "kafka"):
        topic, bootstrap = _topic(servers, target), servers.bootstrap(target)
        for tool in (java_tools.producer_performance, java_tools.consumer_performance):
            name = tool.__name__.title().replace("_", "")
            yield _case(servers, target, name, "record", partial(_tool, partial(tool, bootstrap, topic)))


def _tool(tool: Callable[[int], Result]) -> Done:
    return by_process(TOOL_RECORDS, lambda: float(tool(TOOL_RECORDS)["records_per_s"]), lambda: tool(1))


def _latency(servers: Servers) -> Iterator[Case]:
    url = servers.pulsar.service_url
    for target in ("gateway", "kafka", "pulsar"):
        topic = _topic(servers, target)
        if target == "pulsar":
            probe = partial(native_clients.pulsar_latency, url, pulsar_topic(topic))
        else:
            probe = partial(native_clients.kafka_latency, servers.bootstrap(target), topic)
        yield _case(servers, target, f"{LATENCY_RATE} records/s, client library", "record", partial(_at_rate, probe))


def _at_rate(probe: Callable[[int, float], Result]) -> Done:
    def run() -> float:
        probe(LATENCY_RATE, LATENCY_S)
        return LATENCY_RATE

    return by_process(LATENCY_RATE * LATENCY_S, run, lambda: probe(LATENCY_RATE, 0.01))


def _opening(servers: Servers) -> Iterator[Case]:
    """A gateway that has just started opens each partition for a consumer."""
    topic, bootstrap = unique_topic("profile"), servers.bootstrap("gateway")
    create_topic(bootstrap, topic, PARTITIONS)
    write_all(bootstrap, topic, PARTITIONS)

    def read() -> float:
        return PARTITIONS / float(read_all(bootstrap, topic, PARTITIONS, writes=False)["all_s"])

    name, run = f"open {PARTITIONS:,} partitions, read {RECORDS} records", partial(by_process, PARTITIONS, read)
    yield _case(servers, "gateway", name, "partition", run, anew=True)


def _single_address(servers: Servers) -> Iterator[Case]:
    with two_gateways(servers.work_dir, servers.pulsar) as both:
        for way, bootstrap in both.ways.items():
            pids = {LEADER: both.leader.pid, PULSAR: servers.pulsar.pid}
            pids |= {} if way == DIRECT else {GATEWAY: both.first.pid}
            gateways = tuple(each for each in pids if each != PULSAR)
            case = partial(Case, through=way, unit="batch", prepare=pids.copy, gateways=gateways)
            for size in (10, 1_000):
                topic = both.topic()
                load = partial(run_load, bootstrap=bootstrap, topic=topic, batch_records=size)
                produce = partial(load, "kafka.produce", in_flight=20)
                yield case(f"produce {size:,} from 20", run=_spanning(produce))
            end = end_offset(both.ways[DIRECT], topic)
            consume = partial(load, "kafka.consume", start=max(0, end - TAIL_BATCHES * size), end=end)
            yield case(f"fetch {size:,}", run=_spanning(consume))


PARTS: dict[str, Callable[[Servers], Iterator[Case]]] = {
    "produce": _produce,
    "from the start": _from_start,
    "tools": _tools,
    "latency": _latency,
    "opening": _opening,
    "single address": _single_address,
}
"""Each case is to be run before the next one is taken."""
