"""The project's Pulsar client and a real broker, checked with the pulsar-client package."""

import asyncio
import contextlib
import os
import random
import secrets
from typing import Any, cast

import pulsar as native
import pytest

from gateway.log.opening_turns import OpeningTurns
from gateway.log.writing.writer_names import fence_writers
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ProducerBusyError, ProducerFencedError, PulsarError, TopicNotFoundError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.reader import Entry, Start
from protocol.pulsar.entry import NativeMessage, encode_message, iter_messages
from protocol.pulsar.frames import Buffer
from tests.integration.pulsar_cluster import (
    MANY,
    NAMESPACE,
    PUBLISH_TIME_MS,
    TIMEOUT_S,
    Cluster,
    Entries,
    PulsarAddresses,
    Sends,
    run,
)


def native_client(cluster: Cluster) -> Any:
    logger = native.ConsoleLogger(native.LoggerLevel.Error)
    return native.Client(cluster.settings.service_url, logger=logger)


def native_receive(cluster: Cluster, topic: str, count: int) -> list[Any]:
    client = native_client(cluster)
    reader = client.create_reader(topic, native.MessageId.earliest)
    try:
        return [reader.read_next(TIMEOUT_S * 1000) for _ in range(count)]
    finally:
        client.close()


def test_a_native_consumer_reads_what_we_send(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        batch = [encode_message(b"one", key=b"k", properties=[("p", b"q")], event_time_ms=5), encode_message(b"two")]
        producer.send(batch, num_messages=2, publish_time_ms=PUBLISH_TIME_MS, properties=[("entry", "1")])
        producer.send([encode_message(os.urandom(10), key=b"\xff")], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        last = await sends.receipt(1)
        one, two, three = await asyncio.to_thread(native_receive, cluster, topic, 3)
        assert (one.data(), one.partition_key(), one.properties(), one.event_timestamp()) == (
            b"one",
            "k",
            {"p": "q"},
            5,
        )
        assert (two.data(), two.publish_timestamp()) == (b"two", PUBLISH_TIME_MS)
        assert (three.message_id().ledger_id(), three.message_id().entry_id()) == last
        await producer.close()

    run(pulsar, test)


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batching", [True, False])
def test_we_read_what_a_native_producer_sends(pulsar: PulsarAddresses, compression: str, batching: bool) -> None:
    values = [bytes([i]) * 500 for i in range(20)] + [b"", os.urandom(300_000)]

    def produce(cluster: Cluster, topic: str) -> None:
        client = native_client(cluster)
        producer = client.create_producer(
            topic, compression_type=getattr(native.CompressionType, compression), batching_enabled=batching
        )
        for i, value in enumerate(values):
            producer.send_async(value, None, partition_key=f"k{i}", properties={"i": str(i)}, event_timestamp=i + 1)
        producer.flush()
        client.close()

    async def test(cluster: Cluster) -> None:
        topic = await cluster.new_topic()
        found: list[NativeMessage] = []
        await asyncio.to_thread(produce, cluster, topic)
        entries = Entries()
        reader = await cluster.client.open_reader(topic, "earliest", entries)
        reader.flow(MANY)
        next_index = 0
        while len(found) < len(values):
            entry = await entries.entry()
            next_index += entry.num_messages
            assert entry.index == next_index - 1
            found += list(iter_messages(entry.metadata, entry.payload, 1 << 20))
        assert [bytes(m.value) for m in found] == values
        assert [m.key for m in found] == [b"k%d" % i for i in range(len(values))]
        assert [m.properties for m in found] == [(("i", b"%d" % i),) for i in range(len(values))]
        assert [m.event_time_ms for m in found] == [i + 1 for i in range(len(values))]

    run(pulsar, test)


def test_entries_of_all_sizes_come_back_whole_indexed_and_mutable(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        sizes = [0, 1, 1000, 65_000, 65_536, 70_000, 1_000_000, producer.max_message_bytes - 200]
        sizes += random.choices(range(100_000), k=100)
        payloads = [os.urandom(size) for size in sizes]
        for payload in payloads:
            middle = len(payload) // 2
            chunks: list[Buffer] = [payload[:middle], memoryview(payload)[middle:]]
            producer.send(chunks, num_messages=10, publish_time_ms=PUBLISH_TIME_MS)
        last = await sends.receipt(len(payloads) - 1)
        found = await cluster.read(topic, len(payloads))
        assert [bytes(entry.payload) for entry in found] == payloads
        assert [entry.index for entry in found] == list(range(9, 10 * len(payloads), 10))
        assert [entry.position for entry in found] == list(sends.receipts.values())
        assert found[-1].position == last == await cluster.client.last_position(topic)
        assert not any(entry.payload.readonly for entry in found)

    run(pulsar, test)


def test_reading_starts_at_the_requested_position(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        for _ in range(3):
            producer.send([b"x"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(2)
        first, second, third = sends.receipts.values()
        before = first._replace(entry_id=-1)
        cases: list[tuple[Start, bool, Position]] = [
            ("earliest", True, first),
            (before, True, first),
            (before, False, first),
            (first, True, first),
            (first, False, second),
            (third, True, third),
        ]
        for start, inclusive, expected in cases:
            entries = Entries()
            reader = await cluster.client.open_reader(topic, start, entries, inclusive=inclusive)
            reader.flow(1)
            assert (await entries.entry()).position == expected, (start, inclusive)
            await reader.close()
        at_end, behind_last = Entries(), Entries()
        for end, entries in (("latest", at_end), (third, behind_last)):
            reader = await cluster.client.open_reader(topic, cast("Start", end), entries, inclusive=False)
            reader.flow(1)
        producer.send([b"new"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        fourth = await sends.receipt(3)
        assert (await at_end.entry()).position == (await behind_last.entry()).position == fourth

    run(pulsar, test)


def test_a_topic_that_does_not_exist(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(TopicNotFoundError):
            await cluster.client.open_reader(f"persistent://{NAMESPACE}/nope", "earliest", Entries())

    run(pulsar, test)


UNLOADS, BETWEEN_UNLOADS, IN_FLIGHT = 3, 200, 50


async def _send_until_closed(cluster: Cluster, producer: Producer, sends: Sends) -> list[bytes]:
    """Send messages, and unload the topic in between. Returns what was sent."""
    contents: list[bytes] = []
    unloading: asyncio.Task[None] | None = None
    while sends.closed is None:
        contents.append(secrets.token_bytes(20))
        producer.send([contents[-1]], num_messages=3, publish_time_ms=PUBLISH_TIME_MS)
        if unloading is None and len(sends.receipts) >= BETWEEN_UNLOADS:
            unloading = asyncio.create_task(cluster.operations.unload(producer.topic))
        await sends.until(lambda: len(sends.receipts) > len(contents) - IN_FLIGHT or sends.closed is not None)
    assert unloading is not None
    await unloading
    return contents


async def _send_through(cluster: Cluster, topic: str, acknowledged: dict[Position, bytes]) -> None:
    """Messages without a receipt when a producer ends are not sent again."""
    predecessor: Producer | None = None
    sent = 0
    for _ in range(UNLOADS):
        sends = Sends()
        producer = await cluster.client.open_producer(topic, sends, predecessor=predecessor)
        contents = await _send_until_closed(cluster, producer, sends)
        receipts = {number - sent: position for number, position in sends.receipts.items()}
        acknowledged.update({position: contents[n] for n, position in receipts.items()})
        sent += len(contents)  # the next producers continue with the sequence ids
        predecessor = producer


async def _read_through(cluster: Cluster, topic: str, seen: dict[Position, tuple[int | None, bytes]]) -> None:
    start: Any = "earliest"
    while True:
        entries = Entries()
        reader = await cluster.client.open_reader(topic, start, entries, inclusive=False)
        reader.flow(MANY)
        while isinstance(found := await entries.queue.get(), Entry):
            assert found.position not in seen
            seen[found.position] = (found.index, bytes(found.payload))
            start = found.position


def test_unloads_while_sending_and_reading_lose_and_misplace_nothing(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic = await cluster.new_topic()
        acknowledged: dict[Position, bytes] = {}
        seen: dict[Position, tuple[int | None, bytes]] = {}
        reading = asyncio.create_task(_read_through(cluster, topic, seen))
        await _send_through(cluster, topic, acknowledged)
        last = await cluster.client.last_position(topic)
        while last not in seen:
            assert not reading.done()
            await asyncio.sleep(0.01)
        reading.cancel()
        assert {p: content for p, (_, content) in seen.items() if p in acknowledged} == acknowledged
        assert [index for index, _ in seen.values()] == list(range(2, 3 * len(seen), 3))

    run(pulsar, test)


def test_a_newer_exclusive_producer_fences_the_older_one(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, old_sends, new_sends = await cluster.new_topic(), Sends(), Sends()
        other = PulsarClient(cluster.settings)
        old = await cluster.client.open_producer(topic, old_sends, fencing=True)
        bystander = await cluster.client.open_producer(await cluster.new_topic(), Sends())
        new = await other.open_producer(topic, new_sends, fencing=True)
        assert old.topic_epoch is not None
        assert new.topic_epoch == old.topic_epoch + 1
        with contextlib.suppress(PulsarError):
            old.send([b"late"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await old_sends.until(lambda: old_sends.closed is not None)
        new.send([b"first"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await new_sends.receipt(0)
        with pytest.raises(ProducerFencedError):
            await cluster.client.open_producer(topic, old_sends, fencing=True, predecessor=old)
        await new.close()
        with pytest.raises(ProducerFencedError):
            await cluster.client.open_producer(topic, old_sends, fencing=True, predecessor=old)
        assert not old_sends.receipts
        assert not bystander.closed
        assert [bytes(entry.payload) for entry in await cluster.read(topic, 1)] == [b"first"]
        await other.close()

    run(pulsar, test)


def test_the_name_of_a_suspended_producer_is_taken_over(
    pulsar: PulsarAddresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a producer that responds is not taken: it will close itself."""

    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        old = await cluster.client.open_producer(topic, sends, name="gateway")
        other, hasty = (
            PulsarClient(cluster.settings.model_copy(update={"operation_timeout_ms": each})) for each in (20_000, 5_000)
        )
        with pytest.raises(ProducerBusyError):
            await hasty.open_producer(topic, Sends(), name="gateway")
        assert not old.closed
        # Like a suspended process: what it has sent is at the broker or in flight, and pings are not answered.
        monkeypatch.setattr(old.connection, "_handlers", {})
        await fence_writers(other, topic, ["gateway"], OpeningTurns(1))
        with contextlib.suppress(PulsarError):
            old.send([b"late"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await sends.until(lambda: sends.closed is not None)
        new = await other.open_producer(topic, new_sends := Sends(), name="gateway")
        sequence_id = new.send([b"first"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        assert sequence_id > old._last_sequence_id
        await new_sends.receipt(sequence_id)
        assert [bytes(entry.payload) for entry in await cluster.read(topic, 1)] == [b"first"]
        await asyncio.gather(other.close(), hasty.close())

    run(pulsar, test)


def test_an_exclusive_producer_survives_an_unload(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends, fencing=True)
        await cluster.operations.unload(topic)
        await sends.until(lambda: sends.closed is not None)
        again = await cluster.client.open_producer(topic, sends, fencing=True, predecessor=producer)
        assert again.topic_epoch == producer.topic_epoch
        again.send([b"x"], num_messages=1, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(0)

    run(pulsar, test)


def test_acknowledgements_and_their_properties_are_kept(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic, sends = await cluster.new_topic(), Sends()
        producer = await cluster.client.open_producer(topic, sends)
        for _ in range(5):
            producer.send([b"x"], num_messages=10, publish_time_ms=PUBLISH_TIME_MS)
        await sends.receipt(4)
        ended: asyncio.Queue[PulsarError] = asyncio.Queue()
        subscription = await cluster.client.open_subscription(topic, "group", ended.put_nowait)
        await subscription.ack_cumulative(sends.receipts[2], {"kafka.offset": 30})
        acknowledged = "{}:{}".format(*sends.receipts[2])
        async with asyncio.timeout(TIMEOUT_S):  # the position changes a moment before the properties
            while True:
                cursor = (await cluster.admin.topics.internal_stats(topic)).cursors["group"]
                if (cursor["markDeletePosition"], cursor["properties"]) == (acknowledged, {"kafka.offset": 30}):
                    break
                await asyncio.sleep(0.05)
        await subscription.seek(sends.receipts[1])
        cursor = (await cluster.admin.topics.internal_stats(topic)).cursors["group"]
        assert cursor["markDeletePosition"] == "{}:{}".format(*sends.receipts[0])
        await ended.get()
        assert subscription.closed
        await cluster.admin.topics.delete_subscription(topic, "group", force=True)
        assert await cluster.admin.topics.subscriptions(topic) == []

    run(pulsar, test)
