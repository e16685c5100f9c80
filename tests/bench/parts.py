"""The parts of a run. Each part measures its targets side by side, round after round."""

import time
from collections.abc import Callable

from tests.bench.cold_parts import cold_start
from tests.bench.group_parts import groups
from tests.bench.loads import java_tools, native_clients
from tests.bench.loads.idle_clients import idle_connections, stalled_consumers
from tests.bench.loads.meter import Result
from tests.bench.plan import Plan
from tests.bench.process import cpu_seconds, resident_mb
from tests.bench.run import Run
from tests.bench.servers import Servers, pulsar_topic, run_load
from tests.bench.transactions import transactions
from tests.support.names import unique_topic

BATCH_RECORDS = (1, 10, 160, 1000)
IN_FLIGHT = (20, 200)
TARGETS = ("pulsar", "gateway", "kafka")
WARM_UP_S = 0.3
WRITE_IN_FLIGHT = 200
TAIL_BYTES = 16 << 20
"""The size of the part that is read repeatedly: it fits into the gateway's memory."""
LATENCY_RATE = 100
"""Records a second; much less than any of the servers can handle."""
CONNECTIONS = 1_000
STALLED = 50
STALLED_CASE = f"{CONNECTIONS:,} connections, {STALLED} of them consumers that stopped reading"
MEMORY_SETTLES_S = 10.0
"""Reading ahead for clients that do not read reaches its limits within seconds."""


def produce(servers: Servers, run: Run, plan: Plan) -> None:
    """Batches of one size with a fixed number of requests in flight, for a time span."""
    topics = {(target, size): _topic(servers, target) for target in TARGETS for size in BATCH_RECORDS}
    for target in TARGETS:  # compilers warm up in a part that does not count
        _produce_once(servers, target, topics[target, 10], 10, 200, plan.span_s)
    for _ in range(plan.rounds):
        for size in BATCH_RECORDS:
            for in_flight in IN_FLIGHT:
                for target in TARGETS:
                    result = _produce_once(servers, target, topics[target, size], size, in_flight, plan.span_s)
                    run.add("produce", produce_case(size, in_flight), target, result)


def produce_case(size: int, in_flight: int) -> str:
    return f"{size:,} from {in_flight}"


def _produce_once(servers: Servers, target: str, topic: str, size: int, in_flight: int, span_s: float) -> Result:
    common = {"batch_records": size, "in_flight": in_flight, "seconds": span_s, "warm_up_s": WARM_UP_S}
    if target == "pulsar":
        url = servers.pulsar.service_url
        return run_load("pulsar.produce", service_url=url, topic=pulsar_topic(topic), **common)

    def load() -> Result:
        return run_load("kafka.produce", bootstrap=servers.bootstrap(target), topic=topic, **common)

    return _watching_gateway(servers, load) if target == "gateway" else load()


def tail(servers: Servers, run: Run, plan: Plan) -> None:
    """The newest batches, read repeatedly, one fetch at a time."""
    for size in (10, 160, 1000):
        topics = {
            target: _written(servers, target, size, TAIL_BYTES // (110 * size)) for target in ("gateway", "kafka")
        }
        for _ in range(plan.rounds):
            for target, topic in topics.items():
                end = servers.end_offset(target, topic)
                start = max(0, end - TAIL_BYTES // 110 // size * size)
                run.add("tail", str(size), target, _consume(servers, target, topic, size, start, end, plan.span_s))


def catch_up(servers: Servers, run: Run, plan: Plan) -> None:
    """A whole topic from its first record, by a gateway that has just started; and the same entries from Pulsar."""
    for size in (10, 160, 1000):
        batches = plan.small_catch_up_batches if size == 10 else plan.catch_up_bytes // (110 * size)
        topics = {target: _written(servers, target, size, batches) for target in ("gateway", "kafka")}
        end = batches * size
        for _ in range(plan.rounds):
            direct = run_load(
                "pulsar.consume", service_url=servers.pulsar.service_url, topic=pulsar_topic(topics["gateway"]),
                batch_records=size, end=end,
            )  # fmt: skip
            run.add("catch-up", str(size), "pulsar", direct)
            servers.restart_gateway()
            for target, topic in topics.items():
                run.add("catch-up", str(size), target, _consume(servers, target, topic, size, 0, end))


def _written(servers: Servers, target: str, size: int, batches: int) -> str:
    """A topic with at least this number of batches, written under load."""
    topic = _topic(servers, target)
    run_load(
        "kafka.produce", bootstrap=servers.bootstrap(target), topic=topic, batch_records=size,
        in_flight=WRITE_IN_FLIGHT, seconds=0, warm_up_s=0, batches=batches,
    )  # fmt: skip
    return topic


def _consume(servers: Servers, target: str, topic: str, size: int, start: int, end: int, seconds: float = 0) -> Result:
    def load() -> Result:
        return run_load(
            "kafka.consume", bootstrap=servers.bootstrap(target), topic=topic, batch_records=size, start=start, end=end,
            seconds=seconds, warm_up_s=WARM_UP_S if seconds else 0,
        )  # fmt: skip

    return _watching_gateway(servers, load) if target == "gateway" else load()


def _watching_gateway(servers: Servers, load: Callable[[], Result]) -> Result:
    before = cpu_seconds(servers.gateway.pid)
    result = load()
    used_s = cpu_seconds(servers.gateway.pid) - before
    batches = max(1, result["total_batches"])
    return {**result, "cpu_us_per_batch": used_s / batches * 1e6, "resident_mb": resident_mb(servers.gateway.pid)}


def latency(servers: Servers, run: Run, plan: Plan) -> None:
    """Single records at a low fixed rate: time until they are acknowledged, and until a waiting consumer has them."""
    topics = {target: _topic(servers, target) for target in TARGETS}
    native = {target: _topic(servers, target) for target in TARGETS}
    pace = {"rate": LATENCY_RATE, "seconds": plan.latency_s}
    url = servers.pulsar.service_url
    for _ in range(plan.rounds):
        direct = run_load("pulsar.latency", service_url=url, topic=pulsar_topic(topics["pulsar"]), **pace)
        run.add("latency", "frames", "pulsar", direct)
        for target in ("gateway", "kafka"):
            result = run_load("kafka.latency", bootstrap=servers.bootstrap(target), topic=topics[target], **pace)
            run.add("latency", "frames", target, result)
        run.add("latency", "client library", "pulsar", native_clients.pulsar_latency(
            url, pulsar_topic(native["pulsar"]), LATENCY_RATE, plan.latency_s))  # fmt: skip
        for target in ("gateway", "kafka"):
            run.add("latency", "client library", target, native_clients.kafka_latency(
                servers.bootstrap(target), native[target], LATENCY_RATE, plan.latency_s))  # fmt: skip


def memory(servers: Servers, run: Run, plan: Plan) -> None:
    """A new gateway with full caches and many connections, some of which never read the responses to their fetches."""
    topic = _written(servers, "gateway", 1000, plan.catch_up_bytes // 110_000)
    end = servers.end_offset("gateway", topic)
    servers.restart_gateway()
    pid = servers.gateway.pid
    run.add("memory", "just started", "gateway", {"resident_mb": resident_mb(pid)})
    _produce_once(servers, "gateway", topic, 1000, 20, 1.5)
    run.add("memory", "tail cache full", "gateway", {"resident_mb": resident_mb(pid)})
    bootstrap = servers.gateway.bootstrap
    with idle_connections(bootstrap, CONNECTIONS - STALLED):
        offsets = [end * number // STALLED // 1000 * 1000 for number in range(STALLED)]
        with stalled_consumers(bootstrap, topic, offsets):
            time.sleep(MEMORY_SETTLES_S)
            run.add("memory", STALLED_CASE, "gateway", {
                "resident_mb": resident_mb(pid), "peak_mb": resident_mb(pid, peak=True)})  # fmt: skip


def tools(servers: Servers, run: Run, plan: Plan) -> None:
    """Kafka's own performance tools."""
    for _ in range(plan.tool_rounds):
        for target in ("gateway", "kafka"):
            topic, bootstrap = _topic(servers, target), servers.bootstrap(target)
            run.add("tools", "ProducerPerformance", target, java_tools.producer_performance(
                bootstrap, topic, plan.tool_records))  # fmt: skip
            if "ConsumerPerformance" in run.left_out:
                continue
            try:
                run.add("tools", "ConsumerPerformance", target, java_tools.consumer_performance(
                    bootstrap, topic, plan.tool_records))  # fmt: skip
            except RuntimeError as error:
                run.leave_out("ConsumerPerformance", f"{target}: {error}")


def _topic(servers: Servers, target: str) -> str:
    topic = unique_topic("bench")
    servers.create_topic(target, topic)
    return topic


PARTS: dict[str, Callable[[Servers, Run, Plan], None]] = {
    "latency": latency,
    "produce": produce,
    "tail": tail,
    "catch-up": catch_up,
    "memory": memory,
    "tools": tools,
    "groups": groups,
    "cold start": cold_start,
    "transactions": transactions,
}
