"""The goals of the project, and whether a run reaches them."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.parts import IN_FLIGHT, STALLED_CASE, produce_case
from tests.bench.run import Run
from tests.bench.transactions import COMMITTING, PART, PLAIN, READING, SHAPES, shape_case

Measure = Callable[[Run], float | None]
SIZES_READ = (10, 160, 1000)
WANTED_US = {160: (55, 45), 10: (45, 30), 1: (40, 30)}
"""By records of a batch: the CPU of a batch from each number in flight."""
WANTED_US_OF_A_COMMIT = {5: 80, 200: 50}
"""By number in flight."""


@dataclass(frozen=True)
class Goal:
    text: str
    bound: float
    measure: Measure
    unit: str = ""
    at_most: bool = False

    def reached(self, run: Run) -> bool | None:
        """None if the run did not measure it."""
        value = self.measure(run)
        if value is None:
            return None
        return value <= self.bound if self.at_most else value >= self.bound


def _produce(size: int, in_flight: int, to: str) -> Measure:
    case = produce_case(size, in_flight)
    return lambda run: run.ratio("produce", case, "gateway", to, "batches_per_s")


def _consume(part: str, size: int, to: str) -> Measure:
    return lambda run: run.ratio(part, str(size), "gateway", to, "batches_per_s")


def _figure(part: str, case: str, name: str) -> Measure:
    return lambda run: run.figure(part, case, "gateway", name)


def _added_ms(case: str, to: str, name: str) -> Measure:
    def added(run: Run) -> float | None:
        ours, theirs = (run.figure("latency", case, target, name) for target in ("gateway", to))
        return None if ours is None or theirs is None else ours - theirs

    return added


def _cold(run: Run, figure: str) -> tuple[float, int] | None:
    """A figure of the cold start without writes, and the number of its partitions."""
    for (part, case, target), row in run.rows.items():
        value = row.median(figure)
        if part == "cold start" and target == "gateway" and "writes" not in case and value is not None:
            return value, int(case.split()[0].replace(",", ""))
    return None


def _opened_a_second(run: Run) -> float | None:
    found = _cold(run, "all_s")
    return None if found is None else found[1] / found[0]


def _opening_ms(run: Run) -> float | None:
    found = _cold(run, "cpu_ms_per_partition")
    return None if found is None else found[0]


def _tool(name: str) -> Measure:
    return lambda run: run.ratio("tools", name, "gateway", "kafka", "records_per_s")


_THROUGHPUT = (
    *(
        Goal(f"Produce 1,000-record batches from {each} in flight, of the limit", 0.95, _produce(1000, each, "pulsar"))
        for each in IN_FLIGHT
    ),
    *(
        Goal(f"Produce {size}-record batches from {each} in flight, of Kafka", 1.0, _produce(size, each, "kafka"))
        for size in (10, 1)
        for each in IN_FLIGHT
    ),
    *(
        Goal(f"Read {size:,}-record batches from the start, of the limit", 0.95, _consume("catch-up", size, "pulsar"))
        for size in SIZES_READ
    ),
    Goal(
        "Read 10-record batches written under load from the start",
        50_000, _figure("catch-up", "10", "batches_per_s"), "batches/s",
    ),
    Goal("Read 1,000-record batches from memory, of Kafka", 1.0, _consume("tail", 1000, "kafka")),
    Goal("A fetch of 1 MiB, filled", 8, _figure("tail", "1000", "batches_per_fetch"), "batches"),
)  # fmt: skip
_COSTS = (
    *(
        Goal(
            f"CPU of the gateway for a batch, {size} from {in_flight}",
            wanted_us, _figure("produce", produce_case(size, in_flight), "cpu_us_per_batch"), "µs", at_most=True,
        )
        for size, wanted in WANTED_US.items()
        for in_flight, wanted_us in zip(IN_FLIGHT, wanted, strict=True)
    ),
    *(
        Goal(
            f"CPU of the gateway for a commit, from {in_flight}",
            wanted_us, _figure("groups", f"commits from {in_flight}", "cpu_us_per_batch"), "µs", at_most=True,
        )
        for in_flight, wanted_us in WANTED_US_OF_A_COMMIT.items()
    ),
    Goal("Partitions opened a second", 1_000, _opened_a_second),
    Goal("CPU of the gateway to open a partition and read it", 1.0, _opening_ms, "ms", at_most=True),
    Goal("Resident memory, " + STALLED_CASE, 150, _figure("memory", STALLED_CASE, "resident_mb"), "MB", at_most=True),
)  # fmt: skip
_LATENCY = (
    *(
        Goal(
            f"First record of {size:,}-record batches from the start",
            20, _figure("catch-up", str(size), "first_batch_ms"), "ms", at_most=True,
        )
        for size in SIZES_READ
    ),
    Goal(
        "Produce p50 added to Pulsar's",
        0.5, _added_ms("frames", "pulsar", "produce_ms.p50"), "ms", at_most=True,
    ),
    Goal(
        "End to end p50 above Kafka's, frames",
        0.0, _added_ms("frames", "kafka", "end_to_end_ms.p50"), "ms", at_most=True,
    ),
    Goal(
        "End to end p50 above Kafka's, librdkafka",
        0.2, _added_ms("client library", "kafka", "end_to_end_ms.p50"), "ms", at_most=True,
    ),
    Goal(
        "End to end p50 with librdkafka above pulsar-client's",
        0.5, _added_ms("client library", "pulsar", "end_to_end_ms.p50"), "ms", at_most=True,
    ),
)  # fmt: skip
_TOOLS = (
    Goal("ProducerPerformance, of Kafka", 0.9, _tool("ProducerPerformance")),
    Goal("ConsumerPerformance, of Kafka", 0.9, _tool("ConsumerPerformance")),
)


def _of_case(case: str, to: str) -> Measure:
    return lambda run: run.ratio_of_cases(PART, case, to, "gateway", "records_per_s")


def _transactions(partitions: int, producers: int) -> Measure:
    case = shape_case(partitions, producers)
    return lambda run: run.ratio(PART, case, "gateway", "kafka", "transactions_per_s")


_TRANSACTIONS = (
    *(Goal(f"Transactions a second, {shape_case(*each)}, of Kafka", 0.5, _transactions(*each)) for each in SHAPES),
    Goal("Records a second with a commit every 100 ms, of those without", 0.9, _of_case(COMMITTING, PLAIN)),
    Goal(
        "Records a second that are read, read_committed, of read_uncommitted",
        0.95, _of_case(READING["read_committed"], READING["read_uncommitted"]),
    ),
)  # fmt: skip
GOALS = _THROUGHPUT + _COSTS + _LATENCY + _TOOLS + _TRANSACTIONS
