"""Converts classic groups that have members into consumer groups (KIP-848).

A classic group becomes a consumer group when its first member of the consumer protocol joins. Its classic members stay,
and follow the group with the requests of their protocol (`classic_members`). The group becomes a classic group again
when the last member of the consumer protocol has left (`downgrade`). Generations continue as epochs, and epochs as
generations.
"""

from collections.abc import Callable, Generator, Mapping

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.consumer.assignment import Assignment, TopicIdPartition, partitions_of, to_assignment, to_value
from coordinator.group.consumer.classic_members import with_ids
from coordinator.group.consumer.group import Change, ConsumerGroup
from coordinator.group.consumer.member import ClassicProtocols, ConsumerMember
from coordinator.group.consumer.messages import Topics
from coordinator.group.consumer.validation import MAX_NAMES_OF_GROUP, has_record
from coordinator.group.messages import RefusedError
from coordinator.group.records.codec import encode_record
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from coordinator.group.subscription import ConsumerOfGroup, MalformedSubscriptionError
from coordinator.log import Log, Record
from coordinator.slices import SliceCounter, Steps, last_of
from protocol.kafka.errors import ErrorCode

AnyGroup = ClassicGroup | ConsumerGroup

AT_ONCE, AT_ONCE_BYTES = 500, 500_000
"""The members of a group that is converted at once, and what they have sent: some 20 ms of work."""
KEPT_MS = 10_000
"""After this time, what was made of one large group makes room for another."""
MEMBER_UNITS = 10
"""The work for a member, besides that for its topics."""


def to_consumer_group(group: ClassicGroup, log: Log, topics: Topics) -> Generator[None, None, ConsumerGroup]:
    """Keeps the classic members as they are; its records are written with its next append.

    Each step is a slice of the work; the classic group must not change in between. Topics that do not exist are
    assigned to nobody. Raises RefusedError.
    """
    counter = SliceCounter()
    made = ConsumerGroup(group.group_id, log)
    made.offsets = group.offsets
    group_id, epoch = group.group_id, group.generation
    changes = [
        Change(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch)),
        Change(ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch)),
    ]
    for change in changes:
        made.apply(change)
    records = [encode_record(each.key, each.value) for each in changes]
    consumers = yield from _consumers(group, topics, counter)
    owned = yield from _owned(consumers, topics, counter)
    for classic in group.members.values():
        named = consumers[classic.member_id].subscription.topics
        member = _to_consumer(group, classic, named, owned[classic.member_id])
        if not has_record(made, member):
            raise refusal_of(group_id)
        made.add(member)
        records += _records(group_id, member)
        if counter.is_full(3 * MEMBER_UNITS + len(member.assigned) + len(named) // 10):
            yield
    # Until the log has the last record, the classic group counts: it has all members.
    made.writer.write_with_next([*records, *group.tombstones()])
    return made


def refusal_of(group_id: str) -> RefusedError:
    """For a group that cannot be converted."""
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _consumers(
    group: ClassicGroup, topics: Topics, counter: SliceCounter
) -> Generator[None, None, Mapping[str, ConsumerOfGroup]]:
    """What each member reads. Raises RefusedError."""
    found: dict[str, ConsumerOfGroup] = {}
    names: set[str] = set()
    last = frozenset[str]()
    try:
        for member_id, consumer in group.each_consumer():
            found[member_id] = consumer
            (_, named, owned), assigned = consumer
            if named is not last:  # mostly, all members name the same ones
                names.update(named)
            last = named
            names.update(owned, assigned)
            if counter.is_full(MEMBER_UNITS + len(owned) + len(assigned)):
                yield
    except MalformedSubscriptionError as error:
        raise refusal_of(group.group_id) from error
    if len(names) > MAX_NAMES_OF_GROUP:
        raise refusal_of(group.group_id)
    if not all(map(topics.is_known, names)):
        # Partitions of an unknown topic would be assigned to others while members read them.
        raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Topics of the group are being looked up.")
    return found


def _records(group_id: str, member: ConsumerMember) -> list[Record]:
    key, target = (group_id, member.member_id), ConsumerGroupTargetAssignmentMemberValue(to_value(member.assigned))
    return [
        encode_record(ConsumerGroupMemberMetadataKey(*key), member.subscription()),
        encode_record(ConsumerGroupTargetAssignmentMemberKey(*key), target),
        encode_record(ConsumerGroupCurrentMemberAssignmentKey(*key), member.current()),
    ]


def _owned(
    consumers: Mapping[str, ConsumerOfGroup], topics: Topics, counter: SliceCounter
) -> Generator[None, None, Mapping[str, Assignment]]:
    """By member: its assignment, and what else it owned when it joined, as far as nobody else was given it.

    A cooperative member reads this until it has got its new assignment and joins again. If a rebalance was cut short,
    there are no assignments at all.
    """
    assigned: dict[str, Assignment] = {}
    taken: set[TopicIdPartition] = set()
    for member_id, each in consumers.items():
        assigned[member_id] = with_ids(each.assigned, topics.find)
        taken.update(partitions_of(assigned[member_id]))
        if counter.is_full(MEMBER_UNITS + len(each.assigned)):
            yield
    for member_id, each in consumers.items():
        claimed = set(partitions_of(with_ids(each.subscription.owned, topics.find))) - taken
        if claimed:
            taken |= claimed
            assigned[member_id] = to_assignment({*partitions_of(assigned[member_id]), *claimed})
        if counter.is_full(MEMBER_UNITS + len(each.subscription.owned)):
            yield
    return assigned


def _to_consumer(
    group: ClassicGroup, member: ClassicMember, topics: frozenset[str], owned: Assignment
) -> ConsumerMember:
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=owned,
        classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols)),
    )


class Upgrades:
    """Conversions of classic groups into consumer groups. That of a large one takes some time, in which other requests
    are answered; there is one at a time."""

    def __init__(self, log: Log, topics: Topics, start: Callable[[Steps], None]) -> None:
        self._log = log
        self._topics = topics
        self._start = start
        self._large: _Upgrade | None = None

    def converted(self, group: ClassicGroup, now_ms: int) -> ConsumerGroup:
        """The change is not in force yet. Raises RefusedError."""
        steps = to_consumer_group(group, self._log, self._topics)
        if len(group.members) <= AT_ONCE and group.metadata_bytes <= AT_ONCE_BYTES:
            return last_of(steps)
        large = self._large
        if large is not None and large.is_done_for(group):
            self._large = None
            return large.result()
        if large is None or large.is_over(now_ms):
            self._large = _Upgrade(group, steps, now_ms)
            self._start(self._large.steps())
        raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being converted.")


class _Upgrade:
    """The conversion of a group as it is now."""

    def __init__(self, group: ClassicGroup, steps: Generator[None, None, ConsumerGroup], now_ms: int) -> None:
        self._group = group
        self._version = group.version
        self._steps = steps
        self._begun_ms = now_ms
        self._result: ConsumerGroup | RefusedError | None = None
        self._has_ended = False

    def steps(self) -> Steps:
        try:
            while not self._is_outdated:
                next(self._steps)
                yield
        except StopIteration as done:
            self._result = done.value
        except RefusedError as refused:
            self._result = refused
        finally:
            self._has_ended = True

    @property
    def _is_outdated(self) -> bool:
        return self._group.version != self._version

    def is_done_for(self, group: ClassicGroup) -> bool:
        return self._group is group and not self._is_outdated and self._result is not None

    def is_over(self, now_ms: int) -> bool:
        """Another one may begin: the group has changed, nobody has come back for the result, or there is none."""
        is_kept = self._result is not None and now_ms - self._begun_ms < KEPT_MS
        return self._is_outdated or (self._has_ended and not is_kept)

    def result(self) -> ConsumerGroup:
        """Raises RefusedError."""
        assert self._result is not None
        if isinstance(self._result, RefusedError):
            raise RefusedError(self._result.error, str(self._result))
        return self._result
