"""TxnOffsetCommit (key 28), v0-v5 (KIP-98).

v1 throttle time; v2 leader epochs, and COORDINATOR_LOAD_IN_PROGRESS; v3 flexible, and the member that commits
(KIP-447); v4 TRANSACTION_ABORTABLE; v5 adds the group's partition to the transaction (KIP-890). Older clients send
AddOffsetsToTxn first. Offsets count when the transaction is committed: see `coordinator.group.offsets.transactions`.
Below v5 a producer may have begun its next transaction in the same epoch: a commit that comes over another than the
newest connection of the producer's commits closes that connection (as EndTxn does, KAFKA-17754).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.group.messages import CommitResponse, OffsetToCommit, RefusedError, TransactionalCommitRequest
from coordinator.group.offsets.transactions import Verification
from coordinator.group.ports import COMMIT_APPEND_ERRORS
from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.commit_rows import CommitRows
from gateway.requests.group_topics import PartitionCounts, with_counts
from gateway.requests.reply import Reply
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ADDS_VERSION = 5


def handle(call: Call[TxnOffsetCommitRequest]) -> Reply:
    _check_connection(call)
    return with_counts(call, call.request.topics, partial(_checked, call))


def _check_connection(call: Call[TxnOffsetCommitRequest]) -> None:
    """Raises ClosesConnection if the request may be one of an earlier transaction."""
    request, connections = call.request, call.cluster.offset_connections
    producer = Producer(request.producer_id, request.producer_epoch)
    is_newest = connections.record_use(request.transactional_id, producer, call.client.number)
    if not is_newest and call.version < ADDS_VERSION:
        raise ClosesConnection("the producer uses a newer connection")


def _checked(call: Call[TxnOffsetCommitRequest], counts: PartitionCounts) -> Reply:
    request = call.request
    rows = CommitRows(
        request.topics,
        counts,
        lambda topic, each: OffsetToCommit(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata,
            topic_id=counts.topic_ids[topic],
        ),
    )  # fmt: skip
    respond = partial(_response, call, rows)
    if not rows.offsets:
        return Reply(respond({}))
    asked = TransactionalCommitRequest(
        group_id=request.group_id,
        offsets=rows.offsets,
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        version=call.version,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    return Reply.after(_commit(call, asked, respond))


async def _commit(
    call: Call[TxnOffsetCommitRequest],
    asked: TransactionalCommitRequest,
    respond: Callable[[CommitResponse], TxnOffsetCommitResponse],
) -> Reply:
    call.check_age()  # again, because the topics may have been looked up in the meantime
    _check_connection(call)
    try:
        verification = call.cluster.groups.run(
            asked.group_id,
            lambda coordinator, now_ms: coordinator.start_verification(
                asked.group_id, asked.producer_id, asked.producer_epoch
            ),
        )
    except RefusedError as refusal:
        return Reply(respond(dict.fromkeys(asked.offsets, refusal.error)))
    error = await _verify(call, asked.group_id, verification)
    if error:
        return Reply(respond(dict.fromkeys(asked.offsets, error)))
    committing = call.cluster.groups.ask(
        asked.group_id,
        lambda coordinator, now_ms, reply: coordinator.commit_in_transaction(asked, verification, now_ms, reply),
        respond,
    )
    return Reply.later(committing)


async def _verify(call: Call[TxnOffsetCommitRequest], group_id: str, verification: Verification) -> ErrorCode:
    """Whether the group's partition is part of the transaction. The errors are those of a partition's leader in Kafka.
    """
    if not verification.is_needed:
        return ErrorCode.NONE
    number = call.cluster.groups.partition_of(group_id)
    if number is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    error = await call.cluster.verifier.verify(
        call.request.transactional_id,
        Producer(verification.producer_id, verification.producer_epoch),
        TopicPartition(CONSUMER_OFFSETS, number),
        add=call.version >= ADDS_VERSION,
    )
    return COMMIT_APPEND_ERRORS.get(error, error)


def _response(
    call: Call[TxnOffsetCommitRequest], rows: CommitRows, answer: CommitResponse
) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return TxnOffsetCommitResponse(
        topics=[
            row(
                name=name,
                partitions=[
                    row.TxnOffsetCommitResponsePartition(
                        partition_index=number, error_code=error_for_version(Api.TXN_OFFSET_COMMIT, call.version, code)
                    )
                    for number, code in codes
                ],
            )
            for name, codes in rows.codes(answer)
        ]
    )
