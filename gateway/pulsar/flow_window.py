"""How many messages a broker may still send to one reader."""

from __future__ import annotations

from gateway.pulsar.reader import Entry, Reader


class FlowWindow:
    """Permits count messages, also those of a batch. They are given in one piece when half of them are used up."""

    def __init__(self) -> None:
        self._outstanding = 0
        self._half = 0
        """Of what was wanted last."""

    @property
    def is_half_used(self) -> bool:
        """More may be wanted: as long as it is not, there is nothing to top up."""
        return self._outstanding <= self._half

    def used(self, entry: Entry) -> None:
        """An entry has come. It may take more than was left: brokers send whole entries, and count below zero too."""
        self._outstanding -= entry.permits

    def top_up(self, reader: Reader, messages: int) -> bool:
        """Let so many be on their way; none if that is 0. True if the broker got permits."""
        self._half = max(0, messages // 2)
        if messages <= 0 or self._outstanding > self._half:
            return False
        reader.flow(messages - self._outstanding)
        self._outstanding = messages
        return True
