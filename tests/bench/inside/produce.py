"""Produce requests of one batch each, acks=all, from connections with five in flight, like those of Kafka's producers.

In each step, a fixed part of the connections sends requests. The broker acknowledges them some steps later. So the
number of batches that share an entry is the same in every run.
"""

import struct
from collections import deque
from typing import NamedTuple

from crc32c import crc32c

from protocol.kafka.batch import CRC_START
from protocol.kafka.records import Record, encode_batch
from tests.bench.inside.guarded import guarded_scene
from tests.bench.inside.scene import SINGLE_ADDRESS, FakeClient, Scene
from tests.bench.loads.frames import LENGTH_BYTES, RECORD_BYTES, LoadError, ProduceFrames, record_batch

REQUESTS_PER_CONNECTION = 5
STEPS_ON_THE_WAY = 3
"""The number of steps before an entry is acknowledged. The connections take turns in one more group than that."""
_CRC = struct.Struct(">I")
_CRC_AT, _SEQUENCE_AT = 17, 53


class ProduceCase(NamedTuple):
    records: int
    in_flight: int
    idempotent: bool = False
    guarded: bool = False
    """With authorization and quotas."""
    single_address: bool = False
    """By a gateway that forwards what it does not lead."""

    @property
    def name(self) -> str:
        kind = "idempotent " if self.idempotent else ""
        end = " guarded" if self.guarded else " by a single address" if self.single_address else ""
        return f"produce {kind}{self.records} from {self.in_flight}{end}"


class ProduceLoad:
    """Load on one topic."""

    def __init__(self, scene: Scene, case: ProduceCase) -> None:
        if case.guarded or case.single_address:
            scene = guarded_scene() if case.guarded else Scene(None, **SINGLE_ADDRESS)
        self._scene = scene
        self._case = case
        topic = case.name.replace(" ", "-")
        scene.add_topic(topic)
        share = min(case.in_flight, REQUESTS_PER_CONNECTION)
        self._producers = [_Producer(scene.connect(), topic, case, share, n) for n in range(case.in_flight // share)]
        self._groups = deque(self._producers[n :: STEPS_ON_THE_WAY + 1] for n in range(STEPS_ON_THE_WAY + 1))
        self._receipts: deque[bytes] = deque([b""] * (STEPS_ON_THE_WAY if case.in_flight > share else 0))

    def next_step(self) -> "ProduceStep":
        """See ``Load``."""
        self._receipts.append(self._scene.broker.answers())
        group = self._producers if len(self._producers) == 1 else self._groups[0]
        self._groups.rotate(-1)
        requests = [(producer.client, producer.next_requests()) for producer in group]
        batches = len(requests) * min(self._case.in_flight, REQUESTS_PER_CONNECTION)
        return ProduceStep(self._scene, self._receipts.popleft(), requests, batches)

    async def until_all_answered(self) -> None:
        """See ``Load``."""
        for number in range(len(self._receipts)):
            self._scene.broker.say(self._receipts[number])
            self._receipts[number] = b""
        clients = [producer.client for producer in self._producers]
        await self._scene.until_answered(clients)
        for producer in self._producers:
            producer.check_answers()


class ProduceStep(NamedTuple):
    """The input of one step: bytes of the broker and of clients."""

    scene: Scene
    receipts: bytes
    requests: list[tuple[FakeClient, bytes]]
    batches: int

    async def run(self) -> None:
        if self.receipts:
            self.scene.broker.say(self.receipts)
        for client, data in self.requests:
            client.ask(data)
        await self.scene.run()


class _Producer:
    def __init__(self, client: FakeClient, topic: str, case: ProduceCase, share: int, number: int) -> None:
        self.client = client
        self._topic = topic
        self._case = case
        self._share = share
        self._sequence = 0
        self._batch = _idempotent_batch(case.records, number) if case.idempotent else record_batch(case.records)
        self._frames = ProduceFrames(topic, self._batch)

    def next_requests(self) -> bytes:
        parts: list[bytes] = []
        for number in range(self._share):
            if self._case.idempotent:
                self._frames = ProduceFrames(self._topic, self._next_batch())
            parts += self._frames.request(number)
        return b"".join(parts)

    def check_answers(self) -> None:
        if self.client.closed:
            raise LoadError("the gateway has closed a connection")
        data = memoryview(b"".join(self.client.received))
        self.client.received.clear()
        while data:
            self._frames.base_offset(data)
            data = data[LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big") :]

    def _next_batch(self) -> bytes:
        batch = bytearray(self._batch)
        struct.pack_into(">i", batch, _SEQUENCE_AT, self._sequence)
        _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
        self._sequence += self._case.records
        return bytes(batch)


def _idempotent_batch(records: int, producer_id: int) -> bytes:
    rows = [Record(delta, 1_000, None, b"v" * RECORD_BYTES) for delta in range(records)]
    return bytes(encode_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0))


PRODUCE_CASES = (
    ProduceCase(1, 1), ProduceCase(1, 20), ProduceCase(1, 200), ProduceCase(10, 20), ProduceCase(10, 200),
    ProduceCase(160, 20), ProduceCase(160, 200), ProduceCase(10, 20, idempotent=True),
    ProduceCase(10, 20, guarded=True), ProduceCase(10, 20, single_address=True),
)  # fmt: skip
