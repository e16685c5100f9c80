"""Converts consumer groups into classic ones (KIP-848), when the last member of the consumer protocol has left.

The members of the classic protocol stay, each with the partitions that it may still read; the group's epoch becomes its
generation. Of a large group, that takes several steps. Its members change nothing meanwhile: they get the answers of a
coordinator that loads.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from coordinator.group.busy_groups import BusyGroups
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.classic.stored_group import group_record
from coordinator.group.consumer.assignment import CHANGE_SLICES, to_assignment
from coordinator.group.consumer.classic_members import encoded_assignment
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.records.codec import encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey
from coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from coordinator.log import Log, Record
from coordinator.slices import SliceCounter, Steps, begun, last_of
from protocol.kafka.errors import ErrorCode

AT_ONCE = 500
"""The members of a group that is converted at once: some 12 ms of work."""
MEMBER_UNITS = 30
"""The work for a member, besides that for its partitions."""
PART_RECORDS = 1_000
"""Tombstones in one append, which are a slice of the work."""
TIMER_UNITS = 3
"""To cancel the timers of a member."""


def to_classic_group(group: ConsumerGroup, now_ms: int) -> Generator[None, None, ClassicGroup]:
    """The group's own target may differ. Each step is a slice of the work; the group must not change in between."""
    counter = SliceCounter(CHANGE_SLICES)
    made = ClassicGroup(group.group_id, now_ms)
    made.offsets = group.offsets
    made.generation = group.epoch
    made.state = ClassicGroupState.STABLE
    names = group.topic_names()
    for member in group.members.values():
        if member.classic is not None:
            made.add(_to_classic(member, names), CONSUMER_PROTOCOL_TYPE)
            if counter.is_full(MEMBER_UNITS + len(member.assigned)):
                yield
    yield
    made.protocol_name = made.select_protocol()
    made.refresh_subscribed_topics()
    yield
    return made


def _to_classic(member: ConsumerMember, names: Mapping[bytes, str]) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        encoded_assignment(member, to_assignment(member.held()), names),
    )


class Conversion(NamedTuple):
    """What the owner of a group does when it has become a classic one."""

    on_made: Callable[[ClassicGroup, int], None]
    """(group, now): it takes the place of the consumer group."""
    otherwise: Callable[[int], None]
    """(now): the log cannot hold the group's record; it stays as it is."""
    on_stored: Callable[[ErrorCode], None]
    """The outcome of what was written."""


class Downgrades:
    def __init__(
        self,
        log: Log,
        busy: BusyGroups,
        start: Callable[[Steps], None],
        cancel_timers: Callable[[ConsumerGroup, str], None],
    ) -> None:
        """`start` runs work in slices. `cancel_timers` gets a group and the id of a member."""
        self._log = log
        self._busy = busy
        self._start = start
        self._cancel_timers = cancel_timers

    def convert(self, group: ConsumerGroup, now_ms: int, conversion: Conversion) -> bool:
        """Whether the group is converted, now or in some steps. In these, `otherwise` may still be called."""
        if len(group.members) > AT_ONCE or group.has_many_topics:
            self._busy.begin(group.group_id)
            self._start(begun(self._steps(group, now_ms, conversion)))
            return True
        made = last_of(to_classic_group(group, now_ms))
        record = _record(made)
        if record.size_bytes > self._log.max_record_bytes:
            return False
        group.writer.close()
        for member_id in group.members:
            self._cancel_timers(group, member_id)
        self._log.append(
            [record, *_tombstones(group)], lambda error, now_ms: conversion.on_stored(error), irrevocable=True
        )
        conversion.on_made(made, now_ms)
        return True

    def _steps(self, group: ConsumerGroup, now_ms: int, conversion: Conversion) -> Steps:
        is_written, counter = False, SliceCounter(CHANGE_SLICES)
        try:
            made = yield from to_classic_group(group, now_ms)
            record = _record(made)
            if record.size_bytes > self._log.max_record_bytes:
                is_written = True
                self._log.append([], lambda error, now_ms: self._give_up(group, conversion, now_ms), irrevocable=True)
                return
            group.writer.close()
            self._log.append([record], lambda error, now_ms: None, irrevocable=True)
            yield from remove(group, self._log)
            for member_id in group.members:
                self._cancel_timers(group, member_id)
                if counter.is_full(TIMER_UNITS):
                    yield
            is_written = True
            self._log.append(
                [], lambda error, now_ms: self._end(group, made, conversion, error, now_ms), irrevocable=True
            )
        finally:
            if not is_written:  # the coordinator has resigned
                conversion.on_stored(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._busy.end(group.group_id, now_ms)

    def _give_up(self, group: ConsumerGroup, conversion: Conversion, now_ms: int) -> None:
        try:
            conversion.otherwise(now_ms)
        finally:
            self._busy.end(group.group_id, now_ms)

    def _end(
        self, group: ConsumerGroup, made: ClassicGroup, conversion: Conversion, error: ErrorCode, now_ms: int
    ) -> None:
        try:
            if error is ErrorCode.NONE:
                conversion.on_made(made, now_ms)
            conversion.on_stored(error)
        finally:
            self._busy.end(group.group_id, now_ms)


def remove(group: ConsumerGroup, log: Log) -> Steps:
    """Writes the tombstones of a group whose classic successor the log has. Until it has all of them, the classic group
    counts."""
    tombstones = _tombstones(group)
    while some := [*islice(tombstones, PART_RECORDS)]:
        log.append(some, lambda error, now_ms: None, irrevocable=True)
        yield


def _tombstones(group: ConsumerGroup) -> Iterator[Record]:
    """Without that of the classic group, which may be in flight since that one became this group."""
    classic = encode_record(GroupMetadataKey(group.group_id), None)
    return (record for record in group.tombstones() if record != classic)


def _record(made: ClassicGroup) -> Record:
    return group_record(made, {member.member_id: member.assignment for member in made.members.values()})
