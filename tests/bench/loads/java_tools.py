"""Kafka's own ProducerPerformance and ConsumerPerformance, from Kafka's jars."""

import re
import subprocess
import time

from deploy.local.jars import classpath
from deploy.local.java import java_executable
from tests.bench.loads.frames import RECORD_BYTES
from tests.bench.loads.meter import Result

TIMEOUT_S = 90
GROUP_TIMEOUT_MS = 20_000
_PRODUCED = re.compile(r"^(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec .* (?P<p50>\d+) ms 50th", re.M)


def producer_performance(bootstrap: str, topic: str, records: int) -> Result:
    """The producer's defaults: idempotent, acks=all, 16 KB batches, no linger. Raises RuntimeError."""
    output = _run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}",
    )  # fmt: skip
    found = _PRODUCED.findall(output)
    if not found:
        raise RuntimeError(f"ProducerPerformance said nothing of its rate:\n{output[-1000:]}")
    count, rate, p50 = found[-1]
    if int(count) != records:
        raise RuntimeError(f"ProducerPerformance sent {count} of {records} records")
    return {"records_per_s": float(rate), "p50_ms": float(p50)}


def consumer_performance(bootstrap: str, topic: str, records: int) -> Result:
    """The rate of fetching, without the time to join the group. Raises RuntimeError."""
    output = _run(
        "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records),
        "--group", f"bench-{time.monotonic_ns()}", "--timeout", str(GROUP_TIMEOUT_MS),
    )  # fmt: skip
    names, *rows = [line.split(", ") for line in output.splitlines() if ", " in line]
    row = dict(zip(names, rows[-1], strict=True)) if rows else {}
    if int(row.get("data.consumed.in.nMsg", 0)) < records:
        raise RuntimeError(f"ConsumerPerformance read {row.get('data.consumed.in.nMsg', 0)} of {records} records")
    return {"records_per_s": float(row["fetch.nMsg.sec"])}


def _run(tool: str, *arguments: str) -> str:
    command = [java_executable(), "-Xmx512m", "-cp", classpath("kafka"), f"org.apache.kafka.tools.{tool}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{tool} did not end within {TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{tool} failed:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout
