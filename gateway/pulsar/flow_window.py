"""How many messages a broker may still send to one reader."""

from __future__ import annotations

from gateway.pulsar.reader import Entry, Reader


class FlowWindow:
    """Permits count messages, including those in a batch. They are refilled in one step when half of them are used."""

    def __init__(self) -> None:
        self._outstanding = 0
        self._half = 0
        """Half of the number of messages at the last `top_up`."""

    def used(self, entry: Entry) -> bool:
        """Count an entry that has arrived. Brokers send whole entries: the permits can be negative, here and there.

        Returns whether at least half of the permits are used. As long as this is false, no permits need to be added.
        """
        self._outstanding -= entry.permits
        return self._outstanding <= self._half

    def count_again(self, entry: Entry) -> None:
        """``used`` will be called once more for this entry."""
        self._outstanding += entry.permits

    def top_up(self, reader: Reader, messages: int) -> bool:
        """Allow this number of messages in flight; 0 adds no permits. Returns whether the broker got permits."""
        self._half = max(0, messages // 2)
        if messages <= 0 or self._outstanding > self._half:
            return False
        reader.flow(messages - self._outstanding)
        self._outstanding = messages
        return True
