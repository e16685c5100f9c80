"""OffsetDelete (key 47), v0 (KIP-496)."""

from __future__ import annotations

from functools import partial

from coordinator.group.messages import DeleteOffsetsResponse
from coordinator.topics import TopicPartition
from gateway.requests.call import Call
from gateway.requests.group_topics import PartitionCounts, answered_rows, with_counts
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import OffsetDeleteRequest, OffsetDeleteResponse


def handle(call: Call[OffsetDeleteRequest]) -> Reply:
    return with_counts(call, call.request.topics, partial(_delete, call))


def _delete(call: Call[OffsetDeleteRequest], counts: PartitionCounts) -> Reply:
    request = call.request
    asked = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    refused = {key: error for key in asked if (error := counts.error(*key))}
    wanted = [key for key in asked if key not in refused]
    deleting = call.cluster.groups.ask(
        request.group_id,
        lambda coordinator, now_ms, reply: coordinator.delete_offsets(request.group_id, wanted, now_ms, reply),
        partial(_response, answered_rows(request.topics, counts), refused),
    )
    return Reply.later(deleting)


def _response(
    rows: list[tuple[str, list[int]]], refused: dict[TopicPartition, ErrorCode], answer: DeleteOffsetsResponse
) -> OffsetDeleteResponse:
    if answer.error:
        return OffsetDeleteResponse(error_code=answer.error, topics=[])
    errors = refused | dict(answer.partition_errors)
    row = OffsetDeleteResponse.OffsetDeleteResponseTopic
    return OffsetDeleteResponse(
        topics=[
            row(
                name=name,
                partitions=[
                    row.OffsetDeleteResponsePartition(
                        partition_index=number, error_code=errors[TopicPartition(name, number)]
                    )
                    for number in numbers
                ],
            )
            for name, numbers in rows
        ]
    )
