"""How long three gateways need to replace one that is killed, stopped (SIGSTOP), or cut off from the network."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet.network import Unpluggable, unpluggable, why_not
from tests.integration.confluent import create_topic
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

GATEWAYS = 3
PARTITIONS = 12
ROUNDS = 3
LIMIT_S = 60.0
LOOK_S = 0.01
SETTLE_S = 2.0
SEND_PAUSE_S = 0.002
TITLE = "One of three gateways fails: seconds until the others have taken over (median and worst of three)"
HEADINGS = (
    "fault", "metadata shows new leaders", "worst", "idempotent producer continues", "worst", "group commits again",
    "worst",
)  # fmt: skip
Fault = Callable[[GatewayProcess], None]


class Pause:
    """An idempotent producer to all partitions, and the longest time without an acknowledgement of any partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._last = dict.fromkeys(range(PARTITIONS), time.monotonic())
        self.longest_s = 0.0
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "socket.timeout.ms": 5_000,
             "retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 1_000}
        )  # fmt: skip
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(SEND_PAUSE_S):
            self._producer.produce(self._topic, b"x", partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: Any, message: Message) -> None:
        partition, now = message.partition() or 0, time.monotonic()
        if error is None:
            self.longest_s = max(self.longest_s, now - self._last[partition])
            self._last[partition] = now

    def restart(self) -> None:
        self.longest_s = 0.0

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(LIMIT_S)


def deaths(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    faults: dict[str, Fault] = {"killed (SIGKILL)": kill, "stopped (SIGSTOP)": stop}
    for name, fault in faults.items():
        measured = [_once(work_dir, pulsar, fault) for _ in range(ROUNDS)]
        figures.add(TITLE, HEADINGS, [name, *_medians_and_worst(measured)])
    reason = why_not()
    if reason is None:
        measured = [_unplugged(work_dir, pulsar) for _ in range(ROUNDS)]
        figures.add(TITLE, HEADINGS, ["network cable pulled", *_medians_and_worst(measured)])
    else:
        print(f"  not measured: {reason}")


def kill(gateway: GatewayProcess) -> None:
    gateway.kill()


def stop(gateway: GatewayProcess) -> None:
    os.kill(gateway.pid, signal.SIGSTOP)


def _medians_and_worst(measured: list[tuple[float, ...]]) -> list[float]:
    return [figure for column in zip(*measured, strict=True) for figure in (sorted(column)[ROUNDS // 2], max(column))]


def _once(work_dir: Path, pulsar: PulsarStandalone, fault: Fault) -> tuple[float, ...]:
    with _fleet(work_dir, pulsar, None) as gateways:
        return _measure(gateways, fault)


def _unplugged(work_dir: Path, pulsar: PulsarStandalone) -> tuple[float, ...]:
    ports = [int(url.rsplit(":", 1)[1]) for url in (pulsar.service_url, pulsar.admin_url)]
    with unpluggable(work_dir, ports) as there, _fleet(work_dir, pulsar, there) as gateways:
        return _measure(gateways, lambda gateway: there.unplug())


@contextmanager
def _fleet(work_dir: Path, pulsar: PulsarStandalone, there: Unpluggable | None) -> Iterator[list[GatewayProcess]]:
    """Three gateways. The last one will fail; it runs in `there`, if that is given."""
    namespace = {"namespace": unique_topic("deaths")}
    gateways = [
        GatewayProcess(work_dir / namespace["namespace"] / str(number), pulsar.service_url, pulsar.admin_url,
                       {"pulsar": namespace})
        for number in range(GATEWAYS)
    ]  # fmt: skip
    if there is not None:
        victim = gateways[-1]
        victim.prefix = there.prefix
        victim.config["kafka"]["host"] = victim.config["http"]["host"] = there.host
    with ExitStack() as stack:
        for gateway in gateways:
            stack.callback(gateway.kill)
            gateway.start()
        for gateway in gateways:
            gateway.wait_ready()
        yield gateways


def _measure(gateways: list[GatewayProcess], fault: Fault) -> tuple[float, ...]:
    *others, victim = gateways
    survivor, topic = others[0].bootstrap, unique_topic("deaths")
    create_topic(survivor, topic, PARTITIONS)
    with connected(survivor) as client:
        group = _group_of(client, int(victim.config["kafka"]["port"]))
        with connected(victim.bootstrap) as coordinator:
            assert _commit(coordinator, group, topic) == 0
        pause = Pause(",".join(each.bootstrap for each in gateways), topic)
        try:
            time.sleep(SETTLE_S)
            pause.restart()
            began = time.monotonic()
            fault(victim)
            moved = commits = 0.0
            while not (moved and commits):
                assert time.monotonic() - began < LIMIT_S, "the others do not go on"
                if not moved and len(client.call("Metadata", 9, topics=[])["brokers"]) == len(others):
                    moved = time.monotonic() - began
                commits = commits or _commits_after(client, others, group, topic, began)
                time.sleep(LOOK_S)
            time.sleep(SETTLE_S + pause.longest_s)
        finally:
            pause.stop()
    return moved, pause.longest_s, commits


def _commits_after(
    client: RawClient, others: list[GatewayProcess], group: str, topic: str, began: float
) -> float:
    """Time until another gateway coordinates the group; 0 while none does."""
    found = client.call("FindCoordinator", 3, key=group, key_type=0)
    if found["port"] not in {each.config["kafka"]["port"] for each in others}:
        return 0.0
    with connected(f"{HOST}:{found['port']}") as coordinator:
        return time.monotonic() - began if _commit(coordinator, group, topic) == 0 else 0.0


def _group_of(client: RawClient, port: int) -> str:
    while True:
        group = unique_topic("g")
        if client.call("FindCoordinator", 3, key=group, key_type=0)["port"] == port:
            return group


def _commit(client: RawClient, group: str, topic: str) -> int:
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = client.call(
        "OffsetCommit", 7, group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": topic, "partitions": [row]}],
    )  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["error_code"])
