"""How far a compacted log with transactions was cleaned, stored in Pulsar as properties of the managed ledger.

Up to this place, the compacted view has no information on transactions, because markers are removed. No transaction was
open there, and the property has the aborted ones that may not be compacted away yet. So it is a checkpoint outside of
the log. Each cleaning has its own property, and the farthest one is valid: a former leader that writes late must not
move the place back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from gateway.log.resources import Resources
from gateway.log.transactions.checkpoint import (
    Checkpoint,
    MalformedCheckpointError,
    decode_checkpoint,
    encode_checkpoint,
)
from gateway.pulsar.position import Position

PREFIX = "kafka.cleaned."
"""Followed by the offset."""

log = structlog.get_logger()


def cleaned_checkpoint(properties: Mapping[str, str]) -> Checkpoint | None:
    """The farthest of the managed ledger's properties; None if the log was never cleaned."""
    found = None
    for key, text in properties.items():
        if key.startswith(PREFIX):
            try:
                each = decode_checkpoint(text)
            except MalformedCheckpointError as error:
                log.warning("a property does not tell how far a log was cleaned", property=key, error=str(error))
                continue
            found = each if found is None or each.offset > found.offset else found
    return found


async def read_cleaned(resources: Resources, topic: str) -> Checkpoint | None:
    """Read the farthest property. Raises PulsarError."""
    return cleaned_checkpoint(await resources.admin.topics.managed_ledger_properties(topic))


async def write_cleaned(resources: Resources, topic: str, checkpoint: Checkpoint) -> None:
    """Must be written before any message up to the place is removed. Raises PulsarError."""
    topics = resources.admin.topics
    before = await topics.managed_ledger_properties(topic)
    await topics.put_properties(topic, {f"{PREFIX}{checkpoint.offset}": encode_checkpoint(checkpoint)})
    for key in before:
        offset = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and offset.isdecimal() and int(offset) < checkpoint.offset:
            await topics.remove_property(topic, key)


class CleanedPlace:
    """How far one log was cleaned, as far as this gateway knows."""

    def __init__(self, resources: Resources, topic: str, is_compacted: Callable[[], bool]) -> None:
        self._resources = resources
        self._topic = topic
        self._is_compacted = is_compacted
        self.forget()

    def forget(self) -> None:
        self.compacted = self._is_compacted()
        """Whether readers got the compacted log at that time."""
        self._found: Checkpoint | None = None
        self._looked = False

    @property
    def is_outdated(self) -> bool:
        """The topic has become compacted, or is no longer: its readers get other entries than before."""
        return self.compacted != self._is_compacted()

    @property
    def place(self) -> Checkpoint | None:
        """Markers and checkpoints up to there may be missing; None if all are there."""
        return self._found if self.compacted else None

    @property
    def hides_checkpoints(self) -> bool:
        """Readers get aborted records again that were compacted away: checkpoints in the log do not have them."""
        return self._found is not None and not self.compacted

    async def moved(self) -> bool:
        """Read the properties again. True if `place` is a later one now. Raises PulsarError."""
        if self._looked and not self.compacted:
            return False
        before, self._found = self._found, await read_cleaned(self._resources, self._topic)
        self._looked = True
        if self.place is None:
            return False
        return before is None or self.place.offset > before.offset


async def end_of_view(resources: Resources, topic: str, last: Position, *, compacted: bool) -> Position:
    """The last entry that readers get, up to ``last``: the end of a compacted view may be removed."""
    if not compacted:
        return last
    return min(last, await resources.client.last_position(topic, read_compacted=True))
