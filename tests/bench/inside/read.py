"""Old data: a consumer reads a log from its start, repeatedly. Each entry has one batch of ten records."""

from typing import NamedTuple

from tests.bench.inside.scene import Scene
from tests.bench.loads.frames import LENGTH_BYTES, FetchFrames, LoadError, ProduceFrames, record_batch

NAME = "read from the start"
ENTRIES, RECORDS = 2_000, 10
WRITTEN_AT_ONCE = 50
MAX_BYTES = 200_000


class ReadLoad:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._topic = NAME.replace(" ", "-")
        scene.add_topic(self._topic)
        scene.broker.kept[scene.pulsar_name(self._topic)] = []
        self.client = scene.connect()
        self._batch = ProduceFrames(self._topic, record_batch(RECORDS))
        self._frames = FetchFrames(self._topic, max_bytes=MAX_BYTES, max_wait_ms=30_000)
        self._is_written = self._is_asked = False
        self._offset = 0

    def next_step(self) -> "ReadStep":
        """See ``Load``."""
        if not self._is_written:
            return ReadStep(self, b"".join(self._batch.request(0)), b"", 0)
        before, request = self.scene.broker.delivered, b""
        delivered = self.scene.broker.answers()
        self._take_answer()
        if not self._is_asked:
            if self._offset >= ENTRIES * RECORDS:
                self._begin_anew()
            request, self._is_asked = self._frames.request(0, self._offset), True
        return ReadStep(self, request, delivered, self.scene.broker.delivered - before)

    def _begin_anew(self) -> None:
        readers = self.scene.cluster.logs.shared.readers
        readers._remove([*readers._all()])
        self._offset = 0

    def _take_answer(self) -> None:
        """The response to the last request, if it has arrived. Raises LoadError."""
        if self.client.closed:
            raise LoadError("the gateway has closed a connection")
        data = memoryview(b"".join(self.client.received))
        self.client.received.clear()
        if not data:
            return
        self._is_asked = False
        found = self._frames.parse(data)
        if found.first_offset != self._offset or len(data) != LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
            raise LoadError(f"an answer from {found.first_offset}, not from {self._offset}")
        self._offset += found.records_bytes // len(record_batch(RECORDS)) * RECORDS

    async def until_all_answered(self) -> None:
        """See ``Load``."""
        await self.scene.until_answered([self.client])
        if not self._is_written:
            self.client.received.clear()
            for _ in range(ENTRIES):
                self.client.ask(b"".join(self._batch.request(0)))
                await self.scene.until_answered([self.client])
                self.client.received.clear()
            self._is_written = True
            log = self.scene.cluster.logs.find(self._topic, 0)
            assert log is not None
            log._tail.clear()
        self._take_answer()
        self._begin_anew()


class ReadStep(NamedTuple):
    load: ReadLoad
    request: bytes
    delivered: bytes
    batches: int
    """Batches that the broker delivers."""

    async def run(self) -> None:
        if self.delivered:
            self.load.scene.broker.say(self.delivered)
        if self.request:
            self.load.client.ask(self.request)
        await self.load.scene.run()
