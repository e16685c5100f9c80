"""The parts of a run that are about consumer groups."""

import time

from tests.bench.plan import Plan
from tests.bench.process import cpu_seconds, resident_mb
from tests.bench.run import Run
from tests.bench.servers import Servers, create_topic, run_load
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

IN_FLIGHT = (1 * 5, 200)
WARM_UP_S = 0.5
TARGETS = ("gateway", "kafka")
MEMBERS = 10
STORED_PARTITIONS = 100
MANY_TIMEOUT_S = 240


def groups(servers: Servers, run: Run, plan: Plan) -> None:
    for load in ("commits", "heartbeats"):
        for in_flight in IN_FLIGHT:
            _requests(servers, run, plan, load, in_flight)
    _many(servers, run, plan)
    _loading(servers, run, plan)


def _requests(servers: Servers, run: Run, plan: Plan, load: str, in_flight: int) -> None:
    """Requests of one kind, as fast as they are answered."""
    for _ in range(plan.rounds):
        for target in TARGETS:
            pid, topic = _pid(servers, target), unique_topic("bench")
            servers.create_topic(target, topic)
            before = cpu_seconds(pid)
            result = run_load(
                f"groups.{load}", bootstrap=servers.bootstrap(target), topic=topic, in_flight=in_flight,
                seconds=plan.span_s, warm_up_s=WARM_UP_S,
            )  # fmt: skip
            cost_us = (cpu_seconds(pid) - before) / result["total_batches"] * 1e6
            run.add("groups", f"{load} from {in_flight}", target, {**result, "cpu_us_per_batch": cost_us})


def _many(servers: Servers, run: Run, plan: Plan) -> None:
    """Stable groups, with heartbeats every three seconds."""
    for target in TARGETS:
        pid, topic = _pid(servers, target), unique_topic("bench")
        servers.create_topic(target, topic)
        result = run_load(
            "groups.many", timeout_s=MANY_TIMEOUT_S, bootstrap=servers.bootstrap(target), topic=topic, server_pid=pid,
            groups=plan.groups, members=MEMBERS, seconds=plan.groups_s,
        )  # fmt: skip
        run.add("many groups", f"{plan.groups:,} groups of {MEMBERS}", target, result)


def _loading(servers: Servers, run: Run, plan: Plan) -> None:
    """A gateway starts and loads this number of committed offsets. Mirroring is off, because it is not measured here.
    """
    own = GatewayProcess(
        servers.work_dir / "loading", servers.pulsar.service_url, servers.pulsar.admin_url,
        {"pulsar": {"namespace": unique_topic("loading")}, "groups": {"mirror": False}},
    )  # fmt: skip
    topic = unique_topic("bench")
    try:
        own.start()
        own.wait_ready()
        create_topic(own.bootstrap, topic, STORED_PARTITIONS)
        offsets = plan.stored_offsets
        stored = run_load(
            "groups.store", bootstrap=own.bootstrap, topic=topic, groups=offsets // STORED_PARTITIONS,
            partitions=STORED_PARTITIONS,
        )  # fmt: skip
        empty_s = _restart_s(servers.gateway)
        loaded_s = _restart_s(own)
        run.add("loading", f"{offsets:,} committed offsets", "gateway", {
            **stored, "ready_s": loaded_s, "ready_empty_s": empty_s, "resident_mb": resident_mb(own.pid)})  # fmt: skip
    finally:
        own.stop()


def _restart_s(gateway: GatewayProcess) -> float:
    gateway.stop()
    began = time.perf_counter()
    gateway.start()
    gateway.wait_ready()
    return time.perf_counter() - began


def _pid(servers: Servers, target: str) -> int:
    return servers.gateway.pid if target == "gateway" else servers.kafka.pid
