"""ElectLeaders (key 43), v0-v2. v1 unclean elections (KIP-460); v2 flexible.

Each partition has one replica, which leads it: no election is ever needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.controller_timeout import is_over
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.named_partitions import topic_of
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import ElectLeadersRequest, ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Topic.PartitionResult


async def handle(call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    wanted = call.request.topic_partitions
    refusal = None if wanted == [] else _refusal(call)
    if refusal is not None:
        call.count_error(refusal.code)
        topics = [
            await _refused(each, refusal)
            async for each in sliced(wanted or ())
        ]
        return _response(topics, refusal.code)
    if wanted is None:
        return await _all_topics(call)
    return _response(await fan_out(lambda asked: _topic(call, asked), wanted))


def _refusal(call: Call[ElectLeadersRequest]) -> KafkaError | None:
    """Why all of the request is refused, if it is."""
    kind = call.request.election_type if call.version >= 1 else PREFERRED
    if is_over(call.request.timeout_ms):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    if kind not in {PREFERRED, UNCLEAN}:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    return None


async def _refused(asked: ElectLeadersRequest.TopicPartitions, refusal: KafkaError) -> _Topic:
    rows = [_row(number, refusal) async for number in sliced(asked.partitions)]
    return _Topic(topic=asked.topic, partition_result=rows)


async def _all_topics(call: Call) -> ElectLeadersResponse:
    """Returns only partitions that an election changed, or failed for."""
    try:
        topics, unknown = await call.cluster.topics.all()
    except PulsarError as error:
        code = error_code(error)
        call.count_error(code)
        return _response((), code)
    names = sorted([*(topic.name for topic in topics), *unknown])
    return _response(_Topic(topic=name, partition_result=[]) for name in names)


async def _topic(call: Call, asked: ElectLeadersRequest.TopicPartitions) -> _Topic:
    outcomes = await fan_out(lambda number: _outcome(call, asked.topic, number), asked.partitions, at_once=1)
    rows = [_row(*each) async for each in sliced(zip(asked.partitions, outcomes, strict=True))]
    return _Topic(topic=asked.topic, partition_result=rows)


def _response(rows: Iterable[_Topic], code: ErrorCode = ErrorCode.NONE) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=code, replica_election_results=list(rows))


async def _outcome(call: Call, name: str, partition: int) -> Exception:
    try:
        await topic_of(call, name, partition)
    except KafkaError as error:
        return KafkaError(error.code, "No such topic or partition.")
    except PulsarError as error:
        return error
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _row(partition: int, outcome: Exception) -> _Partition:
    return _Partition(partition_id=partition, error_code=error_code(outcome), error_message=str(outcome))
