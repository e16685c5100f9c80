"""The topic of the gateways' heartbeats and other messages: read from its end, written with a plain producer.

A gateway that starts needs the last snapshot of the fleet. A hundred gateways that wrote one in each of their two
heartbeats a second would write 7 MB/s, and each of them would read as much. So a heartbeat has one only if the log got
none for a second, and no member is of a version that cannot read it otherwise.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import structlog

from coordinator.fleet.messages import (
    NO_TRANSACTIONS,
    Heartbeat,
    LogPosition,
    MalformedMessageError,
    Message,
    Snapshot,
    decode_message,
    decode_without_snapshot,
    encode_message,
    has_snapshot,
)
from gateway.background import TaskGroup
from gateway.backoff import Backoff, retried
from gateway.log.entries.entry_stream import read_entries
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClosedByBrokerError, PulsarError, TopicClosedError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.reader import Entry, Reader, Start
from gateway.topics.local_topics import keep_local
from protocol.pulsar import entry as pulsar_entry
from protocol.pulsar.entry import EntryError, iter_messages

TOPIC = "~gateways"
"""Not a valid name in Kafka: clients do not see the topic."""
CLUSTER_ID = "kafka.cluster.id"
"""Property of the topic. Pulsar creates a topic once, with its properties, so all gateways read the same id."""
RETENTION = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 8}
"""The last entry is always kept: it carries the epoch, which must not go back."""
RETENTION_PATIENCE_S, RETENTION_PAUSE_S = 20.0, 1.0
SEND_AGAIN_S = 2.0
"""After this time, a message is in the log, or is sent again."""
SNAPSHOT_EVERY_S = 1.0
LOOK_BACK_ENTRIES = 1_000
"""What hundreds of gateways write in more than a second."""
PERMITS = 1_000
BACKOFF_MAX_MS = 200
"""A lease expires in two seconds: the fleet must recover as soon as a broker serves the topic again."""
PAUSE_S = 0.2
"""Between two attempts, even if what was opened is closed again sooner."""
SILENT_S = 3.0
"""A working reader delivers a heartbeat within this time after Pulsar has confirmed it."""
MAX_MESSAGE_BYTES = 1024 * 1024

OnMessage = Callable[[LogPosition, Message], None]
log = structlog.get_logger()


async def prepare_fleet_topic(admin: AdminClient, namespace: str) -> str:
    """Creates the topic if necessary; returns its full name. Raises PulsarError."""
    topic = f"persistent://{namespace}/{TOPIC}"
    try:
        await admin.topics.create(topic, {CLUSTER_ID: _new_cluster_id()})
    except AdminError as error:
        if not error.conflict:
            raise
    await keep_local(admin, namespace, topic, [topic])
    return topic


async def read_cluster_id(admin: AdminClient, topic: str) -> str:
    """The id that the creator of the topic has set. Raises PulsarError."""
    found = (await admin.topics.properties(topic)).get(CLUSTER_ID)
    if found is None:  # the topic is older than cluster ids: gateways that start at the same time write the same id
        await admin.topics.put_properties(topic, {CLUSTER_ID: _as_cluster_id(uuid.uuid5(uuid.NAMESPACE_URL, topic))})
        found = (await admin.topics.properties(topic))[CLUSTER_ID]
    return found


def _new_cluster_id() -> str:
    return _as_cluster_id(uuid.uuid4())


def _as_cluster_id(random: uuid.UUID) -> str:
    """Kafka's form of a random UUID: 22 characters of URL-safe Base64 that do not begin with a dash."""
    cluster_id = urlsafe_b64encode(random.bytes).decode().rstrip("=")
    return "0" + cluster_id[1:] if cluster_id.startswith("-") else cluster_id


async def limit_retention(admin: AdminClient, topic: str) -> None:
    """Without topic-level policies, heartbeats are kept as long as the namespace's records."""
    try:
        await retried(  # the policy service of a new namespace needs some time
            lambda: admin.topics.set_policy(topic, TopicPolicy.RETENTION, RETENTION),
            lambda error: isinstance(error, AdminError),
            Backoff(RETENTION_PAUSE_S),
            within_s=RETENTION_PATIENCE_S,
        )
    except AdminError as error:
        log.warning("cannot limit the retention of heartbeats", topic=topic, error=str(error))


@asynccontextmanager
async def _at_least(seconds: float) -> AsyncIterator[None]:
    """The body takes at least this time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    yield
    await asyncio.sleep(max(0.0, end_s - loop.time()))


def _has_older(snapshot: Snapshot | None) -> bool:
    """A member does not know transactions, and cannot read heartbeats without a snapshot."""
    members = () if snapshot is None else snapshot.members
    return any(state.member.transaction_version == NO_TRANSACTIONS for state in members)


class FleetLog:
    """`on_message` gets every message after the snapshot that `open` returned, in order."""

    def __init__(self, client: PulsarClient, topic: str, on_message: OnMessage) -> None:
        self._client = client
        self._topic = topic
        self._on_message = on_message
        self._start: Start = "earliest"
        self._inclusive = True
        self._last = Position(-1, -1)
        self._read_up_to = self._confirmed = Position(-1, -1)
        self._caught_up = asyncio.Event()
        self._reader: Reader | None = None
        self._reader_closed = asyncio.Event()
        self._producer_closed = asyncio.Event()
        self._snapshot_read_s = -math.inf
        """When the last entry with a snapshot was read."""
        self._window = FlowWindow()
        self._producer: Producer | None = None
        self.is_lost_by_all = False
        """The broker closed the last producer, like those of the other gateways, and nothing was confirmed since.

        If the broker is merely unreachable from here, it may still serve the other gateways."""
        self._tasks = TaskGroup()

    async def open(self) -> Snapshot | None:
        """The fleet according to the log's last writer; None if the log is new. Raises PulsarError, TimeoutError."""
        self._last = await self._client.last_position(self._topic)
        snapshot = None if self._last.entry_id < 0 else await self._last_snapshot()
        if snapshot is not None and snapshot.position is not None:
            self._start, self._inclusive = Position(*snapshot.position), False
        return snapshot

    async def _last_snapshot(self) -> Snapshot | None:
        """The last snapshot in the log. It is nearly always among the last entries, and often in the very last."""
        last = self._last
        recent = last._replace(entry_id=max(0, last.entry_id - LOOK_BACK_ENTRIES))
        for start in (last, recent, "earliest"):
            found = None
            async with aclosing(read_entries(self._client, self._topic, start, last)) as entries:
                async for entry in entries:
                    message = self._decode(entry, decode_message)
                    found = found if message is None else message.snapshot or found
            if found is not None:
                return found
        return None

    async def start(self) -> None:
        """Read on and keep a producer until `close`; return when everything written before `open` is read."""
        self._tasks.keep_running("fleet log reader", self._keep_reading)
        self._tasks.keep_running("fleet log producer", self._keep_producer)
        if self._last.entry_id >= 0:
            await self._caught_up.wait()

    async def close(self) -> None:
        """Sent messages are written if the broker answers in time."""
        await self._tasks.close()
        if self._reader is not None:
            await self._reader.close()
        try:
            if self._producer is not None:
                await self._producer.close()
        except PulsarError as error:
            log.info("fleet log not closed properly", error=str(error))

    # Writing

    def send(self, message: Message) -> None:
        """Best effort: senders that need the message to be stored wait until they read it back."""
        if self._producer is None:
            return
        since_snapshot_s = asyncio.get_running_loop().time() - self._snapshot_read_s
        if isinstance(message, Heartbeat) and since_snapshot_s < SNAPSHOT_EVERY_S and not _has_older(message.snapshot):
            message = message.model_copy(update={"snapshot": None})
        try:
            data = pulsar_entry.encode_message(encode_message(message))
            self._producer.send((data,), num_messages=1, publish_time_ms=int(time.time() * 1000))
        except PulsarError as error:
            log.info("heartbeat not sent", error=str(error))

    @property
    def writable(self) -> bool:
        return self._producer is not None and not self._producer.closed

    async def _keep_producer(self) -> None:
        while True:
            async with _at_least(PAUSE_S):
                try:
                    self._producer_closed.clear()
                    self._producer = await self._client.open_producer(self._topic, self, backoff_max_ms=BACKOFF_MAX_MS)
                    await self._producer_closed.wait()
                except PulsarError as error:
                    log.warning("cannot write to the fleet's log", error=str(error))

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.is_lost_by_all = False
        self._confirmed = max(self._confirmed, position)

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        log.warning("heartbeat refused", error=str(error))

    def on_producer_closed(self, error: PulsarError) -> None:
        self._producer = None
        self.is_lost_by_all = isinstance(error, ClosedByBrokerError | TopicClosedError)
        self._producer_closed.set()

    # Reading

    async def _keep_reading(self) -> None:
        while True:
            async with _at_least(PAUSE_S):
                try:
                    self._reader_closed.clear()
                    self._reader = await self._client.open_reader(
                        self._topic, self._start, self, inclusive=self._inclusive, backoff_max_ms=BACKOFF_MAX_MS
                    )
                    self._window = FlowWindow()
                    self._window.top_up(self._reader, PERMITS)
                    await self._until_silent()
                except PulsarError as error:
                    log.warning("cannot read the fleet's log", error=str(error))

    async def _until_silent(self) -> None:
        """Waits until the reader is closed, or closes a reader that delivers nothing: without the entries, this gateway
        has no lease, while its heartbeats keep the others from taking over.
        """
        while not self._reader_closed.is_set():
            confirmed = self._confirmed
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENT_S):
                    await self._reader_closed.wait()
            if self._read_up_to < confirmed and not self._reader_closed.is_set():
                log.warning("no entries of the fleet's log arrive: reading it again", behind=self._read_up_to)
                assert self._reader is not None
                await self._reader.close()
                return

    def on_entry(self, entry: Entry) -> None:
        self._start, self._inclusive = entry.position, False
        self._read_up_to = max(self._read_up_to, entry.position)
        self._window.used(entry)
        if self._reader is not None:
            self._window.top_up(self._reader, PERMITS)
        message = self._decode(entry, self._decode_new_entry)
        if message is not None:
            self._on_message(LogPosition(*entry.position), message)
        if entry.position >= self._last:
            self._caught_up.set()

    def _decode_new_entry(self, data: bytes) -> Message:
        if has_snapshot(data):
            self._snapshot_read_s = asyncio.get_running_loop().time()
        return decode_without_snapshot(data)

    def on_reader_closed(self, error: PulsarError) -> None:
        self._reader_closed.set()

    def _decode(self, entry: Entry, decode: Callable[[bytes], Message]) -> Message | None:
        if entry.is_marker:
            return None
        try:
            values = [message.value for message in iter_messages(entry.metadata, entry.payload, MAX_MESSAGE_BYTES)]
            return decode(bytes(values[0])) if len(values) == 1 else None
        except (EntryError, MalformedMessageError) as error:
            log.warning("unreadable entry in the fleet's log", position=entry.position, error=str(error))
            return None
