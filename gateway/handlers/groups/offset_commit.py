"""OffsetCommit (key 8), v0-v9.

v0 no group membership; v1 generation, member and the commit's own time; v2 retention time instead, up to v4; v3
throttle time; v6 leader epochs; v7 static members; v8 flexible; v9 member epochs (KIP-848).
Offsets are kept for partitions that exist; v0 is stored like the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from coordinator.group.messages import CommitRequest, CommitResponse, OffsetToCommit
from gateway.requests.call import Call
from gateway.requests.commit_rows import CommitRows
from gateway.requests.group_topics import PartitionCounts, with_counts
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import OffsetCommitRequest, OffsetCommitResponse

NO_RETENTION = -1


def handle(call: Call[OffsetCommitRequest]) -> Reply:
    return with_counts(call, call.request.topics, partial(_commit, call))


def _commit(call: Call[OffsetCommitRequest], counts: PartitionCounts) -> Reply:
    request = call.request
    rows = CommitRows(
        request.topics,
        counts,
        lambda topic, each: OffsetToCommit(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata, each.commit_timestamp,
            counts.topic_ids[topic],
        ),
    )  # fmt: skip
    if not rows.offsets:  # An empty commit must not create a group.
        return Reply(response_of(rows.codes({})))
    asked = CommitRequest(
        group_id=request.group_id,
        offsets=rows.offsets,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=None if request.retention_time_ms == NO_RETENTION else request.retention_time_ms,
        version=call.version,
    )

    def respond(answer: CommitResponse) -> OffsetCommitResponse:
        return response_of(rows.codes(answer))

    committing = call.cluster.groups.ask(
        asked.group_id,
        lambda coordinator, now_ms, reply: coordinator.commit_offsets(asked, now_ms, reply),
        respond,
    )
    return Reply.later(committing)


def response_of(rows: Iterable[tuple[str, list[tuple[int, ErrorCode]]]]) -> OffsetCommitResponse:
    """`rows` are topics, with the code of each partition."""
    row = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            row(
                name=name,
                partitions=[
                    row.OffsetCommitResponsePartition(partition_index=number, error_code=code)
                    for number, code in codes
                ],
            )
            for name, codes in rows
        ]
    )
