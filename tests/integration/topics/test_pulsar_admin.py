"""The admin API of a real broker: what it returns, stores and does."""

import asyncio
import secrets
from typing import Any

import pytest

from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.position import Position
from protocol.pulsar.entry import encode_message, iter_messages
from tests.integration.pulsar_cluster import (
    MANY,
    NAMESPACE,
    PUBLISH_TIME_MS,
    Cluster,
    Entries,
    PulsarAddresses,
    Sends,
    run,
)


def test_the_admin_api_finds_entries_by_position_and_time(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topics, topic, sends = cluster.admin.topics, await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        for i in range(3):
            producer.send([b"x"], num_messages=10, publish_time_ms=PUBLISH_TIME_MS + 10 * i)
        last = await sends.receipt(2)
        stored = await topics.entry(topic, sends.receipts[1])
        assert stored is not None
        assert (stored.index, stored.num_messages) == (19, 10)
        assert await topics.entry(topic, last._replace(entry_id=99)) is None
        assert await topics.entry(topic, Position(1 << 40, 0)) is None
        assert await topics.position_at(topic, PUBLISH_TIME_MS + 1) == sends.receipts[1]
        stats = await topics.internal_stats(topic)
        assert stats.last_confirmed == last
        assert [(ledger.ledger_id, ledger.entries) for ledger in stats.ledgers] == [(last.ledger_id, 3)]

    run(pulsar, test)


def test_a_terminated_topic_lists_its_entries(pulsar: PulsarAddresses) -> None:
    """Pulsar closes its ledger, and still lists it as empty."""

    async def test(cluster: Cluster) -> None:
        topics, topic, sends = cluster.admin.topics, await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        for _ in range(3):
            producer.send([b"x"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(2)
        await cluster.operations.terminate(topic)
        assert [ledger.entries for ledger in (await topics.internal_stats(topic)).ledgers] == [3]
        await cluster.operations.unload(topic)
        assert [ledger.entries for ledger in (await topics.internal_stats(topic)).ledgers] == [3]

    run(pulsar, test)


def test_the_admin_api_finds_an_entry_with_an_impossible_publish_time(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topics, topic, sends = cluster.admin.topics, await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        for publish_time_ms in (2**62, 2**64 - 1):
            sent = producer.send([b"x"], num_messages=1, publish_time_ms=publish_time_ms)
            stored = await topics.entry(topic, await sends.receipt(sent))
            assert stored is not None
            assert stored.index == sent

    run(pulsar, test)


def test_an_entry_with_large_properties_is_found(pulsar: PulsarAddresses) -> None:
    """The admin API fails to return it."""

    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        large = [("kafka.checkpoint", "x" * 20_000)]
        producer.send([b"x"], num_messages=3, publish_time_ms=PUBLISH_TIME_MS, properties=large)
        stored = await EntryLookup(cluster.client, cluster.admin).entry(topic, await sends.receipt(0))
        assert stored is not None
        assert (stored.index, stored.num_messages) == (2, 3)

    run(pulsar, test)


def test_an_emptied_topic_still_knows_its_end(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topics, topic, sends = cluster.admin.topics, await cluster.new_topic(), Sends()
        assert (await topics.managed_ledger_properties(topic)).get("index", "-1") == "-1"
        producer = await cluster.client.open_producer(topic, sends)
        producer.send([b"x"], num_messages=30, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(0)
        await cluster.operations.unload(topic)
        await cluster.client.last_position(topic)
        await cluster.operations.truncate(topic)
        assert await topics.managed_ledger_properties(topic) == {"index": "29"}
        assert (await cluster.client.last_position(topic)).entry_id == -1
        await sends.until(lambda: sends.closed is not None)
        again = await cluster.client.open_producer(topic, Sends(), predecessor=producer)
        again.send([b"x"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        assert [entry.index for entry in await cluster.read(topic, 1)] == [30]

    run(pulsar, test)


def test_partitioned_topics_and_their_policies(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topics = cluster.admin.topics
        topic = f"persistent://{NAMESPACE}/ä +%25-{secrets.token_hex(6)}"

        async def policy_becomes(policy: TopicPolicy, expected: Any) -> None:
            """A broker applies policies a moment after its response."""
            while await topics.policy(topic, policy) != expected:
                await asyncio.sleep(0.01)

        await topics.create_partitioned(topic, 2, {"id": "1"})
        with pytest.raises(AdminError) as conflict:
            await topics.create_partitioned(topic, 2, {})
        assert conflict.value.conflict
        await topics.put_properties(topic, {"k": "v"})
        await topics.remove_property(topic, "id")
        await topics.update_partitions(topic, 3)
        assert await topics.partitioned(topic) == (3, {"k": "v"})
        assert await cluster.client.partitions(topic) == 3
        assert topic in await topics.list_partitioned(NAMESPACE)
        assert f"{topic}-partition-2" in await topics.list_topics(NAMESPACE)
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
        await topics.set_policy(topic, TopicPolicy.RETENTION, retention)
        await policy_becomes(TopicPolicy.RETENTION, retention)
        await topics.remove_policy(topic, TopicPolicy.RETENTION)
        await policy_becomes(TopicPolicy.RETENTION, None)
        await topics.set_policy(topic, TopicPolicy.MESSAGE_TTL, 60)
        await policy_becomes(TopicPolicy.MESSAGE_TTL, 60)
        await topics.delete_partitioned(topic, force=True)
        assert topic not in await topics.list_partitioned(NAMESPACE)
        with pytest.raises(AdminError) as missing:
            await topics.partitioned(topic)
        assert missing.value.not_found

    run(pulsar, test)


def test_the_sizes_of_partitions_that_exist(pulsar: PulsarAddresses) -> None:
    """While a topic is being created or deleted, some partitions or all are absent."""

    async def test(cluster: Cluster) -> None:
        topics, topic = cluster.admin.topics, f"persistent://{NAMESPACE}/7-{secrets.token_hex(6)}"
        await topics.create_partitioned(topic, 2, {})
        assert await topics.partition_sizes(topic) == {0: 0, 1: 0}
        await topics.delete(f"{topic}-partition-0")
        assert await topics.partition_sizes(topic) == {1: 0}
        await topics.delete(f"{topic}-partition-1")
        assert await topics.partition_sizes(topic) == {}

    run(pulsar, test)


def test_a_subscription_is_made_in_each_partition_that_has_none(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topics, topic, name = cluster.admin.topics, f"persistent://{NAMESPACE}/{secrets.token_hex(6)}", "~name"
        await topics.create_partitioned(topic, 3, {})
        producer = await cluster.client.open_producer(f"{topic}-partition-1", sends := Sends())
        producer.send([b"x"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(0)
        await topics.create_subscription(topic, name)
        await topics.delete_subscription(f"{topic}-partition-1", name)
        await topics.create_subscription(topic, name)
        for number in range(3):
            assert await topics.subscriptions(f"{topic}-partition-{number}") == [name]
        cursor = (await topics.internal_stats(f"{topic}-partition-1")).cursors["%7Ename"]
        assert cursor["markDeletePosition"].endswith(":-1"), "at the beginning"
        with pytest.raises(AdminError) as conflict:
            await topics.create_subscription(topic, name)
        assert conflict.value.conflict

    run(pulsar, test)


def test_settings_of_the_broker(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        settings = await cluster.admin.brokers.runtime_configuration()
        assert settings["exposingBrokerEntryMetadataToClientEnabled"] == "true"
        assert "AppendIndexMetadataInterceptor" in settings["brokerEntryMetadataInterceptors"]
        policies = await cluster.admin.namespaces.policies(NAMESPACE)
        assert policies["inactive_topic_policies"]["deleteWhileInactive"] is False

    run(pulsar, test)


def test_compaction_keeps_the_last_value_of_each_key(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        keys = [b"a", b"b", b"\xff", b"a", b"b"]
        batches = [[encode_message(b"%d" % i, key=key)] for i, key in enumerate(keys)]
        batches.append([encode_message(b"last", key=b"\xff"), encode_message(None, key=b"b")])
        for batch in batches:
            producer.send(batch, num_messages=len(batch), publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(len(batches) - 1)
        await cluster.operations.compact(topic)
        for _ in range(1_000):
            if await cluster.operations.compaction_status(topic) != "RUNNING":
                break
            await asyncio.sleep(0.05)
        assert await cluster.operations.compaction_status(topic) == "SUCCESS"
        end = producer.send([encode_message(b"end")], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        entries, kept = Entries(), []
        reader = await cluster.client.open_reader(topic, "earliest", entries, read_compacted=True)
        reader.flow(MANY)
        while (entry := await entries.entry()).position != await sends.receipt(end):
            messages = iter_messages(entry.metadata, entry.payload, MANY)
            kept += [(entry.index, m.key, bytes(m.value)) for m in messages if not m.compacted_out]
        assert kept == [(3, b"a", b"3"), (6, b"\xff", b"last")]

    run(pulsar, test)
