"""Gateways of a run, each in a namespace of its own on the same Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.bench.loads.meter import Result
from tests.bench.process import cpu_seconds
from tests.bench.servers import end_offset, run_load
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

SPAN_S, WARM_UP_S = 1.2, 0.3
ROUNDS = 3
TAIL_BATCHES = 500
IN_FLIGHT = 20


class Pulsar(Protocol):
    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...


@contextmanager
def gateway_on(work_dir: Path, pulsar: Pulsar, **sections: dict[str, Any]) -> Iterator[GatewayProcess]:
    folder = work_dir / unique_topic("gateway")
    own = {"pulsar": {"namespace": unique_topic("bench")}, **sections}
    gateway = GatewayProcess(folder, pulsar.service_url, pulsar.admin_url, own)
    gateway.start()
    try:
        gateway.wait_ready()
        yield gateway
    finally:
        gateway.kill()


def listener_address(gateway: GatewayProcess, name: str) -> str:
    found = next(each for each in gateway.config["kafka"]["listeners"] if each["name"] == name)
    return f"{HOST}:{found['port']}"


def fill(bootstrap: str, topic: str, size: int) -> None:
    """Write batches, which the load then reads."""
    run_load(
        "kafka.produce", bootstrap=bootstrap, topic=topic, batch_records=size, in_flight=IN_FLIGHT, seconds=0,
        warm_up_s=0, batches=TAIL_BATCHES,
    )  # fmt: skip


def produce_cost(pids: list[int], bootstrap: str, topic: str, size: int, **more: Any) -> Result:
    """With `cpu_us`: the CPU time of each process for a batch."""
    return _cost(
        pids, "kafka.produce", bootstrap=bootstrap, topic=topic, batch_records=size, in_flight=IN_FLIGHT,
        seconds=SPAN_S, warm_up_s=WARM_UP_S, **more,
    )  # fmt: skip


def tail_cost(pids: list[int], bootstrap: str, plain: str, topic: str, size: int, **more: Any) -> Result:
    """The same for reading the newest batches. The load finds the end offset at the address `plain`."""
    end = end_offset(plain, topic)
    return _cost(
        pids, "kafka.consume", bootstrap=bootstrap, topic=topic, batch_records=size, start=end - TAIL_BATCHES * size,
        end=end, seconds=SPAN_S, warm_up_s=WARM_UP_S, **more,
    )  # fmt: skip


def _cost(pids: list[int], load: str, **arguments: Any) -> Result:
    before = [cpu_seconds(pid) for pid in pids]
    result = run_load(load, **arguments)
    used_s = [cpu_seconds(pid) - begun for pid, begun in zip(pids, before, strict=True)]
    batches = max(1, result["total_batches"])
    return {**result, "cpu_us": [each / batches * 1e6 for each in used_s]}
