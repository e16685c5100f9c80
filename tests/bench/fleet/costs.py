"""What a fleet costs: partitions that a gateway leads, connections, metadata, heartbeats, changes of the membership."""

import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from coordinator.fleet.membership import Identity, Membership
from coordinator.fleet.messages import (
    Address,
    LogPosition,
    MemberState,
    Snapshot,
    decode_without_snapshot,
    encode_message,
)
from coordinator.fleet.placement import PartitionKey
from coordinator.fleet.roster import Roster
from coordinator.fleet.times import FleetTimes
from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from gateway.fleet.fleet_log import SNAPSHOT_EVERY_S
from tests.bench.figures import Figures
from tests.bench.loads.meter import Result
from tests.bench.process import cpu_seconds, resident_mb
from tests.bench.servers import run_load
from tests.integration.confluent import create_topic
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

Part = Callable[[Path, PulsarStandalone, Figures], None]
LED = (1_000, 2_000)
"""Numbers of partitions with an open log."""
CATALOGUED = 10_000
"""The number of partitions in a metadata response."""
CLIENTS = 2_000
FLEETS = (3, 10, 30, 100)
"""Numbers of gateways."""
REFRESHES = 10
BATCH_RECORDS = (10, 1_000)
IN_FLIGHT = 20
ROUNDS = 3
TAIL_BATCHES = 100
"""The number of batches that a leader has in memory."""
SPAN_S, WARM_UP_S = 3.0, 0.5
FLUSH_S = 300.0
REST_S = 5.0
CREATE_S = 600.0
HEARTBEATS_A_SECOND = 2
READS = 100
LED_TITLE = "Partitions that one gateway leads, each with an open log and a producer to Pulsar"
WITHOUT, KB_OF_A_PARTITION, AT_REST = "MB with none", "KB each", "CPU at rest, % of a core"
CONNECTIONS, KB_OF_A_CONNECTION = "Memory of connections that have fetched", "KB each at the gateway that they reach"
DIRECT = "by the leader's own address"
METADATA, ALL_TOPICS, ONE_TOPIC = f"Metadata of {CATALOGUED:,} partitions in topics of 100", "all topics", "one topic"
METADATA_CPU = "CPU ms of each"
MEMBERSHIP = "Membership: each gateway reads every gateway's heartbeats, twice a second"
LOG_READ, HEARTBEATS_CPU = "KB/s that each gateway reads", "% of a core at each gateway"
PLACING = f"ms to place {CATALOGUED:,} partitions anew"
_MS = 1_000.0


@contextmanager
def _gateway(work_dir: Path, pulsar: PulsarStandalone, namespace: str) -> Iterator[GatewayProcess]:
    sections = {"pulsar": {"namespace": namespace}}
    gateway = GatewayProcess(work_dir / unique_topic("gateway"), pulsar.service_url, pulsar.admin_url, sections)
    gateway.start()
    try:
        gateway.wait_ready()
        yield gateway
    finally:
        gateway.kill()


def partitions(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """One gateway leads all partitions. Each partition has been written to, so that its log is open."""
    with _gateway(work_dir, pulsar, unique_topic("scale")) as gateway:
        before_mb, opened = resident_mb(gateway.pid), 0
        for count in LED:
            began, cpu_s = time.monotonic(), cpu_seconds(gateway.pid)
            topic = unique_topic("led")
            create(gateway.bootstrap, topic, count - opened)
            _write_to_each(gateway.bootstrap, topic, count - opened)
            used_s, took_s = cpu_seconds(gateway.pid) - cpu_s, time.monotonic() - began
            new, opened = count - opened, count
            rest = cpu_seconds(gateway.pid)
            time.sleep(REST_S)
            figures.add(
                LED_TITLE,
                ("partitions", WITHOUT, KB_OF_A_PARTITION, "CPU ms to open one", "opened per second", AT_REST),
                [f"{count:,}", before_mb, (resident_mb(gateway.pid) - before_mb) * 1024 / count, used_s / new * _MS,
                 new / took_s, (cpu_seconds(gateway.pid) - rest) / REST_S * 100],
            )  # fmt: skip


def create(bootstrap: str, topic: str, count: int) -> None:
    fields = {"name": topic, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
    with connected(bootstrap, timeout_s=CREATE_S) as client:
        answer = client.call("CreateTopics", 4, topics=[fields], timeout_ms=int(CREATE_S * _MS), validate_only=False)
    assert answer["topics"][0]["error_code"] == 0, answer


def _write_to_each(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(FLUSH_S * _MS)})
    for number in range(count):
        producer.produce(topic, b"x" * 100, partition=number)
    assert producer.flush(FLUSH_S) == 0


class Pair(NamedTuple):
    """Two gateways: `first` forwards what `leader` leads."""

    first: GatewayProcess
    leader: GatewayProcess

    @property
    def ways(self) -> dict[str, str]:
        """The addresses that lead to the leader, by name."""
        port = self.leader.config["kafka"]["listeners"][0]["port"]
        return {DIRECT: f"{HOST}:{port}", "by a single address": self.first.bootstrap}

    def topic(self) -> str:
        """A topic whose partition the leader leads."""
        direct = self.ways[DIRECT]
        while True:
            topic = unique_topic("led")
            create_topic(direct, topic)
            with connected(direct) as client:
                answer = client.call("Metadata", 9, topics=[{"name": topic}])
            ports = {node["node_id"]: f"{HOST}:{node['port']}" for node in answer["brokers"]}
            if ports[answer["topics"][0]["partitions"][0]["leader_id"]] == direct:
                return topic


@contextmanager
def two_gateways(work_dir: Path, pulsar: PulsarStandalone) -> Iterator[Pair]:
    pulsar_section = {"namespace": unique_topic("pair")}
    gateways = []
    for name in ("first", "leader"):
        inside = {"name": "inside", "host": HOST, "port": free_port()}
        sections: dict[str, dict[str, Any]] = {
            "pulsar": pulsar_section, "fleet": {"forwarding": {"host": HOST, "port": free_port()}},
            "kafka": {"host": HOST, "port": free_port(), "single_address": True, "listeners": [inside]},
        }  # fmt: skip
        folder = work_dir / pulsar_section["namespace"] / name
        gateways.append(GatewayProcess(folder, pulsar.service_url, pulsar.admin_url, sections))
    try:
        for gateway in gateways:
            gateway.start()
        for gateway in gateways:
            gateway.wait_ready()
        yield Pair(*gateways)
    finally:
        for gateway in gateways:
            gateway.kill()


def connections(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Connections of clients that have fetched once. The first ones are not counted: a new process has free memory for
    them."""
    headings = ("clients", KB_OF_A_CONNECTION, "KB each at the leader behind it")
    with two_gateways(work_dir, pulsar) as pair:
        topic = pair.topic()
        for way, bootstrap in pair.ways.items():
            reached, behind = pair if bootstrap == pair.first.bootstrap else (pair.leader, None)
            with ExitStack() as stack:
                for _ in range(CLIENTS // 2):
                    _fetch(stack.enter_context(connected(bootstrap)), topic)
                before = _resident_kb(reached), _resident_kb(behind)
                for _ in range(CLIENTS):
                    _fetch(stack.enter_context(connected(bootstrap)), topic)
                grown = _resident_kb(reached) - before[0], _resident_kb(behind) - before[1]
            figures.add(CONNECTIONS, headings, [way, *(kb / CLIENTS for kb in grown)])


def _resident_kb(gateway: GatewayProcess | None) -> float:
    return 0.0 if gateway is None else resident_mb(gateway.pid) * 1024


def _fetch(client: RawClient, topic: str) -> None:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    answer = client.call(
        "Fetch", 11, replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1_000, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[{"topic": topic, "partitions": [part]}], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    assert answer["responses"][0]["partitions"][0]["error_code"] == 0, answer


def forwarding(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """One partition, written with 20 requests in flight, then read from the memory of its leader."""
    with two_gateways(work_dir, pulsar) as pair:
        for size in BATCH_RECORDS:
            topic = pair.topic()
            produce = partial(
                run_load, "kafka.produce", topic=topic, batch_records=size, in_flight=IN_FLIGHT, seconds=SPAN_S,
                warm_up_s=WARM_UP_S,
            )  # fmt: skip
            _compare_ways(pair, f"Produce: batches of {size:,} records, {IN_FLIGHT} in flight", produce, figures)
        end = _end_offset(pair, topic)
        consume = partial(
            run_load, "kafka.consume", topic=topic, batch_records=size, start=max(0, end - TAIL_BATCHES * size),
            end=end, seconds=SPAN_S, warm_up_s=WARM_UP_S,
        )  # fmt: skip
        _compare_ways(pair, f"Fetch: 1 MiB of batches of {size:,} records at a time", consume, figures)


def _compare_ways(pair: Pair, title: str, load: Callable[..., Result], figures: Figures) -> None:
    """Measure both ways in turns, so that other load of the machine affects both; medians of the rounds."""
    rates: dict[str, list[float]] = {way: [] for way in pair.ways}
    costs_us: dict[str, list[float]] = {way: [] for way in pair.ways}
    for _ in range(ROUNDS):
        for way, bootstrap in pair.ways.items():
            used_s = sum(cpu_seconds(each.pid) for each in pair)
            result = load(bootstrap=bootstrap)
            used_s = sum(cpu_seconds(each.pid) for each in pair) - used_s
            rates[way].append(result["batches_per_s"])
            costs_us[way].append(used_s / result["total_batches"] * 1e6)
    direct = next(iter(costs_us.values()))
    headings = ("through", "batches/s", "CPU µs of a batch, both gateways", "of the leader's own address")
    for way, costs in costs_us.items():
        ratio = statistics.median(cost / base for cost, base in zip(costs, direct, strict=True))
        figures.add(title, headings, [way, statistics.median(rates[way]), statistics.median(costs), ratio])


def _end_offset(pair: Pair, topic: str) -> int:
    query = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    with connected(pair.ways[DIRECT]) as client:
        answer = client.call("ListOffsets", 2, replica_id=-1, isolation_level=0, topics=[query])
    return int(answer["topics"][0]["partitions"][0]["offset"])


def metadata(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Metadata of this number of partitions, in topics of a hundred; then a second gateway joins."""
    namespace = unique_topic("metadata")
    with _gateway(work_dir, pulsar, namespace) as gateway, connected(gateway.bootstrap, timeout_s=CREATE_S) as client:
        names = [unique_topic("many") for _ in range(CATALOGUED // 100)]
        began = time.monotonic()
        for name in names:
            create(gateway.bootstrap, name, 100)
        created_s = time.monotonic() - began
        for what, topics in ((ALL_TOPICS, None), (ONE_TOPIC, [{"name": names[0]}])):
            cold_ms, warm_ms, cpu_ms = _refreshes(client, gateway, topics)
            figures.add(
                METADATA, ("asked for", "first answer ms", "later ms", METADATA_CPU), [what, cold_ms, warm_ms, cpu_ms]
            )
        figures.add("Creating these topics", ("partitions", "seconds"), [f"{CATALOGUED:,}", created_s])
        _join(work_dir, pulsar, namespace, gateway, client, figures)


def _refreshes(client: RawClient, gateway: GatewayProcess, topics: Any) -> tuple[float, float, float]:
    times_ms, before_s = [], cpu_seconds(gateway.pid)
    for _ in range(REFRESHES):
        began = time.monotonic()
        correlation_id = client.send("Metadata", 9, topics=topics)
        frame = client.read_frame()
        times_ms.append((time.monotonic() - began) * _MS)
        assert int.from_bytes(frame[:4], "big") == correlation_id
    return times_ms[0], statistics.median(times_ms[1:]), (cpu_seconds(gateway.pid) - before_s) / REFRESHES * _MS


def _join(
    work_dir: Path, pulsar: PulsarStandalone, namespace: str, gateway: GatewayProcess, client: RawClient,
    figures: Figures,
) -> None:  # fmt: skip
    before_s = cpu_seconds(gateway.pid)
    began = time.monotonic()
    with _gateway(work_dir, pulsar, namespace) as second:
        ready_s = time.monotonic() - began
        moved_ms = _refreshes(client, gateway, None)[0]
        used_s = cpu_seconds(gateway.pid) - before_s
        second.stop()
    figures.add(
        f"A second gateway joins the one that leads {CATALOGUED:,} partitions",
        ("ready after s", "first metadata of all topics afterwards, ms", "CPU s of the first gateway"),
        [ready_s, moved_ms, used_s],
    )  # fmt: skip


def heartbeats(_work_dir: Path, _pulsar: PulsarStandalone, figures: Figures) -> None:
    """In memory only: how a gateway handles the heartbeats of all gateways, and a change of leaders."""
    for count in FLEETS:
        snapshot = _snapshot(count)
        text, whole = (encode_message(_heartbeat(each)) for each in (None, snapshot))
        read_ms = _median_ms(partial(_read, Roster(snapshot), text)) / READS
        read_bytes = len(text) * HEARTBEATS_A_SECOND * count + (len(whole) - len(text)) / SNAPSHOT_EVERY_S
        change_ms = _median_ms(partial(_place_all, snapshot))
        figures.add(
            MEMBERSHIP,
            ("gateways", "bytes of a heartbeat", "with a snapshot, once a second", LOG_READ,
             "ms to read one", HEARTBEATS_CPU, PLACING, "partitions of the busiest, of the mean"),
            [count, len(text), len(whole), read_bytes / 1024, read_ms,
             read_ms / _MS * HEARTBEATS_A_SECOND * count * 100, change_ms,
             max(Counter(_place_all(snapshot)).values()) / (CATALOGUED / count)],
        )  # fmt: skip


def _snapshot(count: int) -> Snapshot:
    members = [_membership(number).member for number in range(count)]
    states = tuple(MemberState(member=member, sequence=1, drained_epoch=count) for member in members)
    return Snapshot(epoch=count, position=LogPosition(1, 0), members=states)


def _membership(number: int) -> Membership:
    addresses = {"default": Address(host=f"gateway-{number}.example.org", port=9092)}
    identity = Identity(number, f"gateway-{number} 10.0.0.{number}:9092", addresses, started_ms=0)
    return Membership(identity, FleetTimes(500, 2_000, 2_500, 20_000), lambda: str(uuid.UUID(int=number)), 0)


def _heartbeat(snapshot: Snapshot | None) -> Any:
    [message] = _membership(0).due(0)
    return message.model_copy(update={"snapshot": snapshot})


def _read(roster: Roster, text: bytes) -> None:
    for _ in range(READS):
        roster.apply(LogPosition(1, 1), decode_without_snapshot(text))


def _place_all(snapshot: Snapshot) -> list[int | None]:
    roster = Roster(snapshot)
    return [roster.leader(PartitionKey("topic", number)) for number in range(CATALOGUED)]


def _median_ms(run: Callable[[], object], times: int = 5) -> float:
    """The median processor time."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        run()
        taken.append((time.process_time() - began) * _MS)
    return statistics.median(taken)


COSTS: dict[str, Part] = {
    "heartbeats": heartbeats,
    "metadata": metadata,
    "forwarding": forwarding,
    "connections": connections,
    "partitions": partitions,
}
