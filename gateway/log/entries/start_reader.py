"""The reader that has found the first entry of a log: a consumer that begins there goes on with it."""

from __future__ import annotations

from gateway.log.entries.entry_stream import EntryQueue
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.reader import Entry, EntryListener, Reader


class StartReader:
    """Open at the first entry. Its owner closes it, or hands it over."""

    def __init__(self, reader: Reader, queue: EntryQueue) -> None:
        self.reader = reader
        self.queue = queue
        self.window = FlowWindow()
        self.first: Entry | None = None
        """The first entry, after it was taken from the queue."""
        self.offset = 0
        """The base offset of the first entry."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.first is None else len(self.first.payload)

    @property
    def can_go_on(self) -> bool:
        """Whether the reader is open, and what it has read is in memory, the first entry and little more.

        An entry with an impossible count of messages gives the broker permits for more than that.
        """
        first = self.first
        return not self.reader.closed and first is not None and first.permits == first.num_messages

    def hand_over(self, listener: EntryListener) -> list[Entry]:
        """The entries that have arrived, none of which the window counts. ``listener`` receives the later ones."""
        self.reader.hand_over(listener)
        later = [entry for entry in self.queue.entries if not isinstance(entry, PulsarError)]
        if self.first is None:
            return later
        self.window.count_again(self.first)
        return [self.first, *later]


async def open_start_reader(client: PulsarClient, topic: str) -> StartReader:
    """Raises PulsarError."""
    queue = EntryQueue()
    return StartReader(await client.open_reader(topic, "earliest", queue), queue)
