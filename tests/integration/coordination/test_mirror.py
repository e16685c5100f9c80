"""Committed offsets as Pulsar subscriptions, checked with Pulsar's admin API and its own client."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote_plus

import pulsar as native
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from deploy.local.standalone import PulsarStandalone
from tests.conformance.records import batch, records
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    commit,
    committed,
    create_topic,
    delete_topic,
    offsets_of,
    produce,
    take,
)
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, metric, running
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

NAMESPACE = "kafka/mirror"
BATCHES, BATCH_RECORDS = 3, 10
END = BATCHES * BATCH_RECORDS
NO_OFFSET = -1001
SETTLED_S = 1.5
"""Longer than commits are collected: an unexpected update would have happened."""


@pytest.fixture(scope="module")
def mirroring(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(gateway_on(pulsar, tmp_path_factory.mktemp("mirror"), pulsar={"namespace": "mirror"})) as gateway:
        yield gateway


@pytest.fixture
def topic(mirroring: GatewayProcess) -> str:
    """A topic with one partition of three entries, ten records each."""
    name = unique_topic("mirror")
    create_topic(mirroring.bootstrap, name)
    write_entries(mirroring, name)
    return name


def write_entries(gateway: GatewayProcess, topic: str) -> None:
    """Write BATCHES entries. librdkafka would sometimes make two batches of one entry's records."""
    with connected(gateway.bootstrap) as client:
        for _ in range(BATCHES):
            partition = {"index": 0, "records": batch(records(BATCH_RECORDS))}
            written = client.call(
                "Produce", 7, acks=-1, timeout_ms=30_000, topic_data=[{"name": topic, "partition_data": [partition]}]
            )
            assert written["responses"][0]["partition_responses"][0]["error_code"] == 0


class Subscription:
    """A subscription as Pulsar's admin API shows it."""

    def __init__(self, pulsar: PulsarStandalone, topic: str, name: str) -> None:
        self._admin = Admin(pulsar)
        self.topic = f"persistent/{NAMESPACE}/{topic}-partition-0"
        self.name = name

    @property
    def stats(self) -> dict[str, Any]:
        """Empty if the subscription does not exist."""
        stats = self._admin.call("GET", f"{self.topic}/stats?getPreciseBacklog=true")
        found: dict[str, Any] = stats["subscriptions"].get(self.name, {})
        return found

    @property
    def state(self) -> tuple[int | None, int | None]:
        """(backlog in entries, offset in the cursor's properties)."""
        cursors = self._admin.call("GET", f"{self.topic}/internalStats")["cursors"]
        cursor = cursors.get(quote_plus(self.name).replace("~", "%7E"), {})
        return self.stats.get("msgBacklog"), cursor.get("properties", {}).get("kafka.offset")

    def await_gone(self) -> None:
        wait_for(lambda: not self.stats, "the subscription is deleted")

    def await_state(self, backlog: int, offset: int | None) -> None:
        wait_for(lambda: self.state == (backlog, offset), f"(backlog, offset) of {(backlog, offset)}")


class Group:
    """Commits offsets in the topic's partition."""

    def __init__(self, bootstrap: str, pulsar: PulsarStandalone, topic: str, name: str) -> None:
        self._bootstrap, self._topic, self.name = bootstrap, topic, name
        self.subscription = Subscription(pulsar, topic, name)

    def commit(self, offset: int) -> None:
        commit(self._bootstrap, self.name, self._topic, offset)


def follow(groups: Sequence[Group], rounds: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Each round has (offset, unread entries after it) of each group."""
    for moves in rounds:
        for group, (offset, _) in zip(groups, moves, strict=True):
            group.commit(offset)
        for group, (offset, unread) in zip(groups, moves, strict=True):
            group.subscription.await_state(unread, offset)


def test_backlog_follows_commits(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    groups = [Group(mirroring.bootstrap, pulsar, topic, f"{topic}-{number}") for number in range(4)]
    follow(groups, [
        [(10, 2), (15, 2), (30, 0), (0, 3)],
        [(20, 1), (5, 3), (29, 1), (100, 0)],
        [(20, 1), (0, 3), (12, 2), (1, 3)],
    ])  # fmt: skip
    produce(mirroring.bootstrap, topic, [Record(b"x")])
    groups[0].subscription.await_state(2, 20)


def test_backlog_follows_across_ledgers(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    groups = [Group(mirroring.bootstrap, pulsar, topic, f"{topic}-{number}") for number in range(3)]
    for _ in range(2):
        Admin(pulsar).call("PUT", f"{groups[0].subscription.topic}/unload")
        write_entries(mirroring, topic)
    follow(groups, [[(90, 0), (60, 3), (30, 6)], [(60, 3), (59, 4), (35, 6)], [(25, 7), (60, 3), (30, 6)]])


def test_deleted_offsets_and_groups_leave_nothing(
    mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": mirroring.bootstrap})
    other = unique_topic("mirror-other")
    create_topic(mirroring.bootstrap, other)
    subscription, elsewhere = Subscription(pulsar, topic, topic), Subscription(pulsar, other, topic)
    commit(mirroring.bootstrap, topic, topic, 20)
    commit(mirroring.bootstrap, topic, other, 0)
    subscription.await_state(1, 20)
    elsewhere.await_state(0, 0)
    raw = RawClient(mirroring.bootstrap)
    raw.call("OffsetDelete", 0, group_id=topic, topics=[{"name": topic, "partitions": [{"partition_index": 0}]}])
    raw.close()
    subscription.await_gone()
    assert elsewhere.stats
    assert committed(mirroring.bootstrap, topic, topic) == [NO_OFFSET]
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert committed(mirroring.bootstrap, topic, other) == [NO_OFFSET], "also before the subscription is deleted"
    elsewhere.await_gone()
    assert committed(mirroring.bootstrap, topic, other) == [NO_OFFSET]


@pytest.mark.parametrize(("suffix", "encoded"), [("/a%2F b+c~é", "~2Fa~252F~20b~2Bc~7E~C3~A9"), (":x@y=z.", ":x@y=z.")])
def test_group_names_that_pulsar_cannot_take(
    mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str, suffix: str, encoded: str
) -> None:
    commit(mirroring.bootstrap, topic + suffix, topic, 20)
    subscription = Subscription(pulsar, topic, topic + encoded)
    subscription.await_state(1, 20)
    admin = AdminClient({"bootstrap.servers": mirroring.bootstrap})
    admin.delete_consumer_groups([topic + suffix])[topic + suffix].result(TIMEOUT_S)
    subscription.await_gone()


def test_native_consumer_holds_the_subscription(
    mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str
) -> None:
    failures = "kafka_gateway_mirror_failures_total"
    for offset, kind in ((10, native.ConsumerType.Shared), (20, native.ConsumerType.Exclusive)):
        group = Group(mirroring.bootstrap, pulsar, topic, f"{topic}-{offset}")
        client = native.Client(pulsar.service_url, logger=native.ConsoleLogger(native.LoggerLevel.Error))
        try:
            # At the end, because this client cannot read batches of Kafka clients.
            client.subscribe(f"persistent://{NAMESPACE}/{topic}-partition-0", group.name, kind)
            before = metric(mirroring, failures, error="ConsumerBusyError")
            group.commit(offset)
            wait_for(lambda: metric(mirroring, failures, error="ConsumerBusyError") > before, "a failure")  # noqa: B023
            assert committed(mirroring.bootstrap, group.name, topic) == [offset]
            assert group.subscription.state == (0, None)
            assert metric(mirroring, "kafka_gateway_mirror_pending") >= 1
        finally:
            client.close()
        group.subscription.await_state(3 - offset // BATCH_RECORDS, offset)
    assert f'"group": "{topic}' in mirroring.log_path.read_text(), "somebody has to be told"


def test_group_that_only_pulsar_knows(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    """Created by Pulsar's own tools, or by geo-replication: there is no exact offset."""
    admin, path = Admin(pulsar), Subscription(pulsar, topic, "").topic
    ledger = admin.call("GET", f"{path}/internalStats")["ledgers"][0]["ledgerId"]
    for entry in range(BATCHES):
        admin.call("PUT", f"{path}/subscription/{topic}{entry}", {"ledgerId": ledger, "entryId": entry})
    admin.call("PUT", f"{path}/subscription/{topic}3", {"ledgerId": ledger, "entryId": 0})
    admin.call("POST", f"{path}/subscription/{topic}3/skip_all")
    for entry in range(BATCHES + 1):
        assert committed(mirroring.bootstrap, f"{topic}{entry}", topic) == [entry * BATCH_RECORDS]
    group = Group(mirroring.bootstrap, pulsar, topic, f"{topic}3")
    follow([group], [[(15, 2)]])


def test_new_partitions_are_new_to_groups(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    """Pulsar creates the subscriptions of the first partition on a new one, after messages that were written before."""
    group = Group(mirroring.bootstrap, pulsar, topic, topic)
    follow([group], [[(10, 2)]])
    admin = AdminClient({"bootstrap.servers": mirroring.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    assert committed(mirroring.bootstrap, topic, topic, partitions=3) == [10, NO_OFFSET, NO_OFFSET]


def test_a_topic_that_is_created_again_is_new_to_groups(
    mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str
) -> None:
    """What was just read of the old topic's subscriptions says nothing about the new one: neither of those of groups
    that have committed, nor of one that only Pulsar knows."""
    admin, path = Admin(pulsar), Subscription(pulsar, topic, "").topic
    ledger = admin.call("GET", f"{path}/internalStats")["ledgers"][0]["ledgerId"]
    admin.call("PUT", f"{path}/subscription/{topic}", {"ledgerId": ledger, "entryId": 1})
    group = Group(mirroring.bootstrap, pulsar, topic, f"{topic}-committed")
    follow([group], [[(20, 1)]])
    assert committed(mirroring.bootstrap, topic, topic) == [BATCH_RECORDS]
    delete_topic(mirroring.bootstrap, topic)
    create_topic(mirroring.bootstrap, topic)
    write_entries(mirroring, topic)
    for name in (topic, group.name):
        assert committed(mirroring.bootstrap, name, topic) == [NO_OFFSET]
        settings = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": mirroring.bootstrap, **settings})
        try:
            consumer.subscribe([topic])
            assert offsets_of(take(consumer, END)) == [*range(END)]
        finally:
            consumer.close()
    follow([group], [[(20, 1)]])  # the offset of before


def test_retention_counts_for_dead_groups_too(mirroring: GatewayProcess, pulsar: PulsarStandalone) -> None:
    """Pulsar needs minutes to show that the subscription does not stop retention."""
    policies = Admin(pulsar).call("GET", f"namespaces/{NAMESPACE}")
    assert policies["message_ttl_in_seconds"] == policies["retention_policies"]["retentionTimeInMinutes"] * 60


def test_restart(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    """The topic of committed offsets is lost: groups continue at the positions of their subscriptions."""
    admin, groups = Admin(pulsar), {n: Group(mirroring.bootstrap, pulsar, topic, f"{topic}-{n}") for n in (0, 15, 30)}
    follow([*groups.values()], [[(0, 3), (15, 2), (30, 0)]])
    mirroring.stop()
    admin.call("DELETE", f"persistent/{NAMESPACE}-gateway/__consumer_offsets/partitions?force=true")
    admin.call("POST", f"{groups[0].subscription.topic}/subscription/{topic}-0/skip/1")
    mirroring.start()
    mirroring.wait_ready()
    for offset, expected in ((0, 10), (15, 15), (30, 30)):
        assert committed(mirroring.bootstrap, f"{topic}-{offset}", topic) == [expected]


def test_settings(mirroring: GatewayProcess, pulsar: PulsarStandalone, topic: str) -> None:
    """Commits while the mirror was off are mirrored when it is on again, then to replicated subscriptions."""
    group = Group(mirroring.bootstrap, pulsar, topic, topic)
    deleted = Group(mirroring.bootstrap, pulsar, topic, f"{topic}-deleted")
    follow([deleted], [[(10, 2)]])
    configure(mirroring, mirror=False)
    group.commit(25)
    admin = AdminClient({"bootstrap.servers": mirroring.bootstrap})
    admin.delete_consumer_groups([deleted.name])[deleted.name].result(TIMEOUT_S)
    time.sleep(SETTLED_S)
    assert not group.subscription.stats
    configure(mirroring, mirror=True, mirror_replicated=True)
    group.subscription.await_state(1, 25)
    deleted.subscription.await_gone()
    assert group.subscription.stats["isReplicated"]
    wait_for(lambda: metric(mirroring, "kafka_gateway_group_lag", group=topic) == END - 25, "the lag")
    row = shown(mirroring, topic)[0]
    assert row == [topic, "Empty", "0", topic, "0", "25", str(END), str(END - 25), "1"]


def configure(gateway: GatewayProcess, **groups: bool) -> None:
    """Restart the gateway with these settings of its groups."""
    gateway.stop()
    gateway.config["groups"].update(groups)
    gateway.start()
    gateway.wait_ready()


def shown(gateway: GatewayProcess, group: str) -> list[list[str]]:
    """The rows of `kafka-gateway groups`."""
    command = [sys.executable, "-m", "gateway.cli", "groups", "--config", str(gateway.work_dir / "gateway.toml"), group]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return [line.split() for line in done.stdout.splitlines() if group in line]
