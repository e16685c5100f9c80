"""How far a compacted log with transactions was cleaned, stored in Pulsar as properties of the managed ledger.

Up to this place, the compacted view has no information on transactions, because markers are removed. No transaction was
open there, and the property has the aborted ones that may not be compacted away yet. So it is a checkpoint outside of
the log. Each cleaning has its own property, and the farthest one is valid: a former leader that writes late must not
move the place back.

A place has the aborted records that were left in the view then. Readers get others again if the compacted log is lost,
because the topic was not compacted for a while, or the compaction's cursor was deleted. So a place also says
how far Pulsar had compacted the log at that time (`before`). It is valid if the present compaction has come as far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

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


class Cleaned(NamedTuple):
    """What the properties say."""

    was_cleaned: bool = False
    place: Checkpoint | None = None
    """The farthest one that is valid."""


def cleaned_places(properties: Mapping[str, str]) -> list[Checkpoint]:
    """The places in the managed ledger's properties, the farthest one first. Empty if the log was never cleaned."""
    found = []
    for key, text in properties.items():
        if key.startswith(PREFIX):
            try:
                each = decode_checkpoint(text)
            except MalformedCheckpointError as error:
                log.warning("a property does not tell how far a log was cleaned", property=key, error=str(error))
                continue
            found.append(each)
    return sorted(found, key=lambda each: each.offset, reverse=True)


async def read_cleaned(resources: Resources, topic: str) -> Cleaned:
    """Raises PulsarError."""
    places = cleaned_places(await resources.admin.topics.managed_ledger_properties(topic))
    if not places:
        return Cleaned()
    reached = await compacted_to(resources, topic)  # afterwards: what is compacted in between only comes farther
    return Cleaned(was_cleaned=True, place=next((each for each in places if each.before <= reached), None))


async def compacted_to(resources: Resources, topic: str) -> Position:
    """The last entry that Pulsar has compacted. Raises PulsarError."""
    return (await resources.admin.topics.internal_stats(topic)).compacted_to


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

    def __init__(self, resources: Resources, topic: str, compaction: Callable[[], int]) -> None:
        self._resources = resources
        self._topic = topic
        self._compaction = compaction
        self.forget()

    def forget(self) -> None:
        self._period = self._compaction()
        """0 if readers did not get the compacted log at that time."""
        self._found = Cleaned()
        self._looked = False
        self._is_lost = False

    @property
    def is_outdated(self) -> bool:
        """Readers get other entries than before: the topic has become compacted, or was not for a while, or the
        compacted log was lost."""
        return self._is_lost or self._period != self._compaction()

    @property
    def compacted(self) -> bool:
        return self._period != 0

    @property
    def place(self) -> Checkpoint | None:
        """Markers and checkpoints up to there may be missing; None if all are there."""
        return self._found.place if self.compacted else None

    @property
    def hides_checkpoints(self) -> bool:
        """Readers get aborted records again that were compacted away: checkpoints in the log do not have them."""
        return self._found.was_cleaned and self.place is None

    async def moved(self) -> bool:
        """Read the properties again. True if `place` is a later one now. Raises PulsarError."""
        if self._looked and not self.compacted:
            return False
        before, self._found = self.place, await read_cleaned(self._resources, self._topic)
        self._looked = True
        if self.place is None:
            self._is_lost = before is not None
            return False
        return before is None or self.place.offset > before.offset

    async def check(self) -> None:
        """Note whether the compacted log of `place` was lost since, or there is one again. Raises PulsarError."""
        place = self.place
        if place is None:
            await self.moved()
        elif await compacted_to(self._resources, self._topic) < place.before:
            self._is_lost = True


async def end_of_view(resources: Resources, topic: str, last: Position, *, compacted: bool) -> Position:
    """The last entry that readers get, up to ``last``: the end of a compacted view may be removed."""
    if not compacted:
        return last
    return min(last, await resources.client.last_position(topic, read_compacted=True))
