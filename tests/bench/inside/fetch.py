"""Fetch requests of consumers at the end of their partitions: each gets one batch, like one that keeps up.

In a session, a request has only the partition that had a batch, as Kafka's consumer does it. A waiting fetch is
answered when a batch is written, which wakes all consumers of the topic.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tests.bench.inside.scene import FakeClient, Scene
from tests.bench.loads.frames import LENGTH_BYTES, LoadError, ProduceFrames, record_batch
from tests.support.raw_client import encode_request

CONSUMERS = 20
RECORDS = 10
SESSION_VERSION, NAMING_VERSION = 17, 11
"""Versions of Kafka's consumer, which names topics by id, and of librdkafka."""
_OFFSET_MARK, _EPOCH_MARK, _SESSION_MARK = 0x0123456789ABCDEF, 0x12345678, 0x23456789
_CORRELATION_AT, _SESSION_AT = LENGTH_BYTES + 4, LENGTH_BYTES + 4 + 1 + 4 + 2
"""Positions in requests, and in responses of flexible versions."""


class FetchCase(NamedTuple):
    session_partitions: int = 0
    """0 without a session."""
    waits: bool = False

    @property
    def name(self) -> str:
        kind = f"in a session of {self.session_partitions}" if self.session_partitions else "without a session"
        return f"fetch{' that waits' if self.waits else ''} {kind}"


class FetchLoad:
    """Load on one topic."""

    def __init__(self, scene: Scene, case: FetchCase) -> None:
        self.scene = scene
        self.case = case
        self._topic = case.name.replace(" ", "-")
        self._partitions = max(1, case.session_partitions)
        scene.add_topic(self._topic, self._partitions)
        self._producer = scene.connect()
        self._batch = ProduceFrames(self._topic, record_batch(RECORDS))
        self._consumers: list[_Consumer] = []
        self._end = 0

    def next_step(self) -> "FetchStep":
        """See ``Load``."""
        if not self._consumers:
            return FetchStep(self, [], self._batch_for_all(), is_opening=True)
        offset = self._end if self.case.waits else self._end - RECORDS
        requests = [(consumer.client, consumer.next_request(offset)) for consumer in self._consumers]
        written = b"".join(self._batch.request(0)) if self.case.waits else b""
        self._end += RECORDS if self.case.waits else 0
        return FetchStep(self, requests, written)

    def _batch_for_all(self) -> bytes:
        return b"".join(
            b"".join(ProduceFrames(self._topic, record_batch(RECORDS), partition).request(0))
            for partition in range(self._partitions)
        )

    def write(self, data: bytes) -> None:
        self._producer.ask(data)

    async def until_all_answered(self) -> None:
        """See ``Load``."""
        await self.scene.until_answered([self._producer, *(consumer.client for consumer in self._consumers)])
        self._producer.received.clear()
        for consumer in self._consumers:
            consumer.check_answer()
        if not self._consumers:
            self._end = RECORDS
            self._consumers = [self._begin() for _ in range(CONSUMERS)]
            await self.scene.until_answered(consumer.client for consumer in self._consumers)
            for consumer in self._consumers:
                consumer.begun()

    def _begin(self) -> "_Consumer":
        topic = self.scene.cluster.topics.cached(self._topic)
        assert topic is not None
        is_in_session = self.case.session_partitions > 0
        named: dict[str, object] = {"topic_id": topic.topic_id} if is_in_session else {"topic": self._topic}
        return _Consumer(self.scene.connect(), named, self._partitions, is_in_session=is_in_session)


class FetchStep(NamedTuple):
    """The input of one step: bytes of consumers, and then of a producer."""

    load: FetchLoad
    requests: Sequence[tuple[FakeClient, bytes]]
    written: bytes
    is_opening: bool = False

    @property
    def batches(self) -> int:
        return len(self.requests)

    async def run(self) -> None:
        scene = self.load.scene
        for client, data in self.requests:
            client.ask(data)
        if not self.written:
            return
        self.load.write(self.written)
        if not self.is_opening:
            await scene.run(1)
            scene.broker.say(scene.broker.answers())
            await scene.run()


class _Consumer:
    def __init__(
        self, client: FakeClient, topic: dict[str, object], partitions: int, *, is_in_session: bool
    ) -> None:
        self.client = client
        self._epoch = 0
        self._version = SESSION_VERSION if is_in_session else NAMING_VERSION
        self._is_in_session = is_in_session
        changed = self._frame(topic, range(1), _OFFSET_MARK, _SESSION_MARK, _EPOCH_MARK)
        self._frame_bytes = bytearray(changed)
        self._offset_at = changed.index(_OFFSET_MARK.to_bytes(8, "big"))
        self._epoch_at = changed.index(_EPOCH_MARK.to_bytes(4, "big")) if is_in_session else 0
        if is_in_session:
            client.ask(self._frame(topic, range(partitions), RECORDS, 0, 0))

    def begun(self) -> None:
        """The response to the first fetch has the session."""
        if self._is_in_session:
            [answer] = self.client.received
            (session_id,) = struct.unpack_from(">i", answer, _SESSION_AT)
            at = self._frame_bytes.index(_SESSION_MARK.to_bytes(4, "big"))
            struct.pack_into(">i", self._frame_bytes, at, session_id)
        self.client.received.clear()

    def _frame(
        self, topic: dict[str, object], partitions: range, offset: int, session_id: int, epoch: int
    ) -> bytes:
        rows = [
            {
                "partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
                "log_start_offset": -1, "partition_max_bytes": 1 << 20,
            }
            for partition in partitions
        ]  # fmt: skip
        fields = {
            "replica_id": -1, "max_wait_ms": 30_000 if epoch or not self._is_in_session else 0, "min_bytes": 1,
            "max_bytes": 50 << 20, "isolation_level": 0, "session_id": session_id if self._is_in_session else 0,
            "session_epoch": epoch if self._is_in_session else -1, "topics": [{**topic, "partitions": rows}],
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        payload = encode_request("Fetch", self._version, fields, correlation_id=0, client_id="bench")
        return len(payload).to_bytes(LENGTH_BYTES, "big") + payload

    def next_request(self, offset: int) -> bytes:
        self._epoch += 1
        struct.pack_into(">i", self._frame_bytes, _CORRELATION_AT, self._epoch)
        struct.pack_into(">q", self._frame_bytes, self._offset_at, offset)
        if self._is_in_session:
            struct.pack_into(">i", self._frame_bytes, self._epoch_at, self._epoch)
        return bytes(self._frame_bytes)

    def check_answer(self) -> None:
        """Raises LoadError if the last fetches did not get one batch each."""
        if self.client.closed:
            raise LoadError("the gateway has closed a connection")
        data = memoryview(b"".join(self.client.received))
        self.client.received.clear()
        while data:
            size = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
            if not RECORDS * 100 < size < 2 * RECORDS * 115:
                raise LoadError(f"an answer of {size} bytes")
            data = data[size:]


FETCH_CASES = (
    FetchCase(), FetchCase(1), FetchCase(20), FetchCase(waits=True), FetchCase(1, waits=True),
    FetchCase(20, waits=True),
)  # fmt: skip
