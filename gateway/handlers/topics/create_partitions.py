"""CreatePartitions (key 37), v0-v3. v2 flexible; v3 refusals above the quota (KIP-599)."""

from __future__ import annotations

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.controller_timeout import is_over
from gateway.handlers.topics.create_topics import MAX_RECORDS, TOO_MANY
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.repeated import times_of
from gateway.requests.replica_assignment import check_assignments
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse

_Wanted = CreatePartitionsRequest.CreatePartitionsTopic
_Row = CreatePartitionsResponse.CreatePartitionsTopicResult


class _Room:
    """For the partitions of one request: as in Kafka, once they are too many, all later rows are refused, too."""

    def __init__(self) -> None:
        self._left = MAX_RECORDS

    def take(self, partitions: int) -> None:
        """Raises KafkaError if there is no room left."""
        if partitions > self._left:
            self._left = 0
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
        self._left -= partitions


async def handle(call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    named = await times_of(topic.name for topic in call.request.topics)
    duplicates = [name async for name, times in sliced(named.items()) if times > 1]
    once = [topic async for topic in sliced(call.request.topics) if named[topic.name] == 1]
    if once and is_over(call.request.timeout_ms):
        call.count_error(ErrorCode.REQUEST_TIMED_OUT)
        refused = [_row(each.name, ErrorCode.REQUEST_TIMED_OUT, None) async for each in sliced(call.request.topics)]
        return CreatePartitionsResponse(results=refused)
    rows = [_row(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") async for name in sliced(duplicates)]
    room = _Room()
    rows += await fan_out(lambda wanted: _answer(call, wanted, room), once, at_once=1)
    return CreatePartitionsResponse(results=rows)


async def _answer(call: Call[CreatePartitionsRequest], wanted: _Wanted, room: _Room) -> _Row:
    try:
        await _grow(call, wanted, room)
    except KafkaError as error:
        code, text = error.code, error.text
    except PulsarError as error:
        code, text = error_code(error), str(error)
    else:
        return _row(wanted.name, ErrorCode.NONE, None)
    call.count_error(code)
    return _row(wanted.name, code, text)


async def _grow(call: Call[CreatePartitionsRequest], wanted: _Wanted, room: _Room) -> None:
    topic = await call.topics.get(wanted.name, fresh=True)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.count == topic.partitions:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s).")
    if wanted.count < topic.partitions:
        count = f"{topic.partitions} partition(s)"
        text = f"The topic {topic.name} currently has {count}; {wanted.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    _check_count(wanted.assignments, wanted.count - topic.partitions)
    if topic.name in INTERNAL_TOPICS:  # Every group would belong to another partition.
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The partition count of {topic.name} is fixed.")
    call.charge_mutations(wanted.count - topic.partitions)
    if wanted.assignments is not None:
        check_assignments(call, [assignment.broker_ids for assignment in wanted.assignments])
    room.take(wanted.count - topic.partitions)
    if not call.request.validate_only:
        await call.cluster.topics.change("add partitions", _add(call.cluster, topic, wanted.count))


async def _add(cluster: Cluster, topic: Topic, count: int) -> None:
    """Continues when the client has left: groups must not skip what is written to the new partitions."""
    await cluster.topics.add_partitions(
        topic, count, lambda before: cluster.group_service.partitions_added(before, count)
    )


def _check_count(assignments: list[_Wanted.CreatePartitionsAssignment] | None, added: int) -> None:
    if assignments is not None and len(assignments) != added:
        text = f"{added} partition(s) to add, but {len(assignments)} assignment(s)."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _row(name: str, code: ErrorCode, text: str | None) -> _Row:
    return _Row(name=name, error_code=code, error_message=text)
