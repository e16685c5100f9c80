"""Pulsar trims the groups' log up to the gateway's snapshots, and no offset is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from gateway.coordination.partition.trimming_cursor import SUBSCRIPTION
from tests.integration.confluent import TIMEOUT_S, commit, committed, create_topic
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, metric, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

LOG = "__consumer_offsets-partition-0"
SEGMENT_BYTES = 20_000
COMMITS = 1_500
"""Entries for more than five segments."""
LEDGER_ENTRIES = 100
KEPT = [f"kept-{number}" for number in range(20)]
GONE = "gone"
SNAPSHOTS = "kafka_gateway_internal_log_snapshots_total"


@pytest.fixture(scope="module")
def rolling_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    """Its ledgers are small, and old ones are deleted soon."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": str(LEDGER_ENTRIES),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "retentionCheckIntervalInSeconds": "1",
    }
    with running(PulsarStandalone(tmp_path_factory.mktemp("rolling"), settings=settings)) as server:
        yield server


@pytest.fixture
def gateway(rolling_pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with a namespace of its own, and one partition for all groups."""
    groups = {
        "offsets_topic_partitions": 1,
        "offsets_topic_segment_bytes": SEGMENT_BYTES,
        "mirror": False,
        "initial_rebalance_delay_ms": 0,
    }
    pulsar = {"namespace": unique_topic("trimmed")}
    with running(gateway_on(rolling_pulsar, tmp_path, pulsar=pulsar, groups=groups)) as server:
        yield server


@pytest.fixture
def system(gateway: GatewayProcess, rolling_pulsar: PulsarStandalone) -> Admin:
    """The admin API of the gateway's system namespace."""
    return Admin(rolling_pulsar, f"kafka/{gateway.config['pulsar']['namespace']}-gateway")


def commit_many(gateway: GatewayProcess, topic: str) -> int:
    """Commit the same partition's offset in this number of entries. Returns the last offset."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "busy", "enable.auto.commit": False})
    try:
        for offset in range(COMMITS):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()
    return COMMITS - 1


def trim(system: Admin) -> None:
    """As after the retention time, when Pulsar has compacted the log."""
    system.topic("PUT", LOG, "/compaction")
    wait_for(lambda: system.topic("GET", LOG, "/compaction")["status"] == "SUCCESS", "compacted")
    first = system.ledgers(LOG)[0]["ledgerId"]  # Pulsar may delete it before the answer to the next request arrives
    system.topic("POST", "__consumer_offsets", "/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    system.unload(LOG)
    wait_for(lambda: system.ledgers(LOG)[0]["ledgerId"] > first, "older ledgers are gone")


def check_state(gateway: GatewayProcess, topic: str, busy: int) -> None:
    wait_for(lambda: committed(gateway.bootstrap, "busy", topic) == [busy], "the groups are loaded")
    for number, group in enumerate(KEPT):
        assert committed(gateway.bootstrap, group, topic) == [number], group
    assert committed(gateway.bootstrap, GONE, topic) == [-1001]
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert {group.group_id for group in listed.valid} == {*KEPT, "busy"}


def restart(gateway: GatewayProcess) -> None:
    gateway.kill()
    gateway.start()
    gateway.wait_ready()


def test_what_is_overwritten_goes_and_what_counts_stays(gateway: GatewayProcess, system: Admin) -> None:
    topic = unique_topic("trimmed")
    create_topic(gateway.bootstrap, topic)
    wait_for(lambda: metric(gateway, SNAPSHOTS) > 0, "a log's first snapshot is taken when it is loaded")
    for number, group in enumerate(KEPT):
        commit(gateway.bootstrap, group, topic, number)
    commit(gateway.bootstrap, GONE, topic, 5)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.delete_consumer_groups([GONE])[GONE].result(TIMEOUT_S)
    before = metric(gateway, SNAPSHOTS)
    busy = commit_many(gateway, topic)
    wait_for(lambda: metric(gateway, SNAPSHOTS) > before, "another one when a segment is written")
    trim(system)
    wait_for(lambda: system.topic("GET", LOG, "/internalStats")["numberOfEntries"] < COMMITS, "so are their entries")
    check_state(gateway, topic, busy)
    restart(gateway)
    check_state(gateway, topic, busy)
    # The gateway reads Pulsar's compacted view while the admin API does not answer, or when the cursor was deleted.
    system.topic("DELETE", LOG, f"/subscription/{SUBSCRIPTION}?force=true")
    restart(gateway)
    check_state(gateway, topic, busy)
    wait_for(lambda: metric(gateway, SNAPSHOTS) > 0, "without a cursor there is a new snapshot")
    assert SUBSCRIPTION in system.subscriptions(LOG)
