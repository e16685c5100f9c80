"""Guards of groups: GROUP Read, Describe and Delete, and what they show of topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from coordinator.group.consumer.validation import MAX_TOPIC_NAMES
from gateway.authorization.guard import (
    AT_ONCE,
    MESSAGES,
    NeedsEach,
    TopicRows,
    chain,
    changed,
    changing,
    made,
    may,
    may_cluster,
    needs,
    needs_cluster,
    refusal,
    showing,
    topic_name,
    with_error,
)
from gateway.fan_out import Slices, sliced
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call, Guard, Handle
from gateway.requests.denials import DENIED
from gateway.requests.reply import Reply, run_waiting
from protocol.kafka.acl import NOT_ASKED, AclOperation, ResourceType, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupResponse,
    ListGroupsRequest,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitResponse,
)

_GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_group_id = attrgetter("group_id")


def _reads_group(refuse: Callable[[Call, ErrorCode], Any]) -> Guard:
    return needs(AclOperation.READ, ResourceType.GROUP, _group_id, refuse)


def _may_describe(call: Call, group_id: str) -> bool:
    return may(call, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)


def _may_describe_topic(call: Call, topic: str) -> bool:
    return may(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _refuse_description(call: Call, group_id: str) -> None:
    call.count_denied(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)


def _hide_topics(call: Call, names: Iterable[str]) -> None:
    for name in names:
        call.count_denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


MEMBER = _reads_group(with_error)
"""The guard of SyncGroup, Heartbeat and LeaveGroup."""
NULL_PROTOCOL_VERSION = 7


def _refuse_join(call: Call, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="" if call.version < NULL_PROTOCOL_VERSION else None)


JOIN_GROUP = _reads_group(_refuse_join)

# Offsets

_Committed = OffsetCommitResponse.OffsetCommitResponseTopic
_CommittedInTransaction = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Removed = OffsetDeleteResponse.OffsetDeleteResponseTopic
_commits = TopicRows(AclOperation.READ, "topics", "topics", _Committed, _Committed.OffsetCommitResponsePartition)
_commits_in_transactions = TopicRows(
    AclOperation.READ, "topics", "topics", _CommittedInTransaction,
    _CommittedInTransaction.TxnOffsetCommitResponsePartition,
)  # fmt: skip
_removals = TopicRows(AclOperation.READ, "topics", "topics", _Removed, _Removed.OffsetDeleteResponsePartition)

OFFSET_COMMIT = chain(_reads_group(_commits.refuse_all), _commits.guard)
TXN_OFFSET_COMMIT = chain(
    needs(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, attrgetter("transactional_id"),
        _commits_in_transactions.refuse_all,
    ),
    _reads_group(_commits_in_transactions.refuse_all),
    _commits_in_transactions.guard,
)  # fmt: skip
OFFSET_DELETE = chain(needs(AclOperation.DELETE, ResourceType.GROUP, _group_id, with_error), _removals.guard_with_error)

_Fetched = OffsetFetchResponse.OffsetFetchResponseTopic
_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchedOfGroup = _FetchedGroup.OffsetFetchResponseTopics
_NO_OFFSET = -1
OWN_ERROR_VERSION, SEVERAL_VERSION = 2, 8


def _offset_rows(topic: type[Any], partition: type[Any]) -> TopicRows:
    return TopicRows(
        AclOperation.DESCRIBE, "topics", "topics", topic,
        lambda **fields: partition(committed_offset=_NO_OFFSET, metadata="", **fields),
        asked_partitions="partition_indexes", asked_index=None,
    )  # fmt: skip


_offsets = _offset_rows(_Fetched, _Fetched.OffsetFetchResponsePartition)
_offsets_of_group = _offset_rows(_FetchedOfGroup, _FetchedOfGroup.OffsetFetchResponsePartitions)


def offset_fetch(call: Call[OffsetFetchRequest], handle: Handle) -> Reply:
    return Reply.after(_several_groups(call, handle)) if call.version >= SEVERAL_VERSION else _one_group(call, handle)


def _one_group(call: Call[OffsetFetchRequest], handle: Handle) -> Reply:
    request = call.request
    if not _may_describe(call, request.group_id):
        _refuse_description(call, request.group_id)
        if call.version >= OWN_ERROR_VERSION:
            return Reply(OffsetFetchResponse(error_code=_GROUP_DENIED, topics=[]))
        return refusal(call, partial(_offsets.refuse_all, call, _GROUP_DENIED))
    if request.topics is not None:
        return _offsets.guard(call, handle)
    return showing(handle(call.asking(request)), "topics", lambda row: _may_describe_topic(call, row.name))


async def _several_groups(call: Call[OffsetFetchRequest], handle: Handle) -> Reply:
    """Requested topics, and those with committed offsets, are shown only where the client may describe them."""
    slices, asked, refused, hidden = Slices(), [], [], {}
    async for group in sliced(call.request.groups):
        if not _may_describe(call, group.group_id):
            _refuse_description(call, group.group_id)
            refused.append(_FetchedGroup(group_id=group.group_id, error_code=_GROUP_DENIED))
            continue
        shown_topics, denied = [], []
        async for row in sliced(group.topics or ()):
            if _may_describe_topic(call, row.name):
                shown_topics.append(row)
            else:
                await slices.pause()
                _hide_topics(call, [row.name])
                denied.append(await made(partial(_offsets_of_group.refused, row), len(row.partition_indexes)))
        if denied:
            hidden[group.group_id] = denied
        asked.append(changed(group, "topics", shown_topics) if denied else group)
    if not asked:
        return Reply(OffsetFetchResponse(groups=refused))

    async def shown(group: _FetchedGroup) -> _FetchedGroup:
        if group.error_code:
            return group
        rows = [row async for row in sliced(group.topics) if _may_describe_topic(call, row.name)]
        return changed(group, "topics", rows + hidden.get(group.group_id, []))  # type: ignore[no-any-return]

    async def all_shown(response: OffsetFetchResponse) -> OffsetFetchResponse:
        rows = [await shown(group) async for group in sliced(response.groups)]
        return changed(response, "groups", rows + refused)  # type: ignore[no-any-return]

    if not refused and not hidden and all(group.topics is not None for group in asked):
        return handle(call)
    return handle(call.asking(changed(call.request, "groups", asked))).then_in_slices(all_shown)


# Coordinators and descriptions

_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2
_SEVERAL_KEYS_VERSION = 4
_KEY_TYPES = {_GROUP_KEY: ResourceType.GROUP, _TRANSACTION_KEY: ResourceType.TRANSACTIONAL_ID}
_NO_NODE = -1
_Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(call: Call[FindCoordinatorRequest], handle: Handle) -> Reply:
    if call.request.key_type not in _KEY_TYPES:
        return _share_coordinator(call, handle)
    if call.version >= _SEVERAL_KEYS_VERSION:
        return _several_keys(call, handle)
    if _may_find(call, call.request.key):
        return handle(call)
    code = _count_hidden_key(call, call.request.key)
    text = MESSAGES[code]
    return Reply(FindCoordinatorResponse(error_code=code, error_message=text, node_id=_NO_NODE, host="", port=_NO_NODE))


def _may_find(call: Call[FindCoordinatorRequest], key: str) -> bool:
    return may(call, AclOperation.DESCRIBE, _KEY_TYPES[call.request.key_type], key)


def _count_hidden_key(call: Call[FindCoordinatorRequest], key: str) -> ErrorCode:
    resource_type = _KEY_TYPES[call.request.key_type]
    call.count_denied(AclOperation.DESCRIBE, resource_type, key)
    return DENIED[resource_type]


def _refused_key(call: Call[FindCoordinatorRequest], key: str) -> _Coordinator:
    code = _count_hidden_key(call, key)
    return _Coordinator(key=key, node_id=_NO_NODE, host="", port=_NO_NODE, error_code=code, error_message="")


_several_keys = NeedsEach("coordinator_keys", _may_find, "coordinators", _refused_key)


def _refuse_keys(call: Call[FindCoordinatorRequest], code: ErrorCode) -> FindCoordinatorResponse:
    rows = [
        _Coordinator(key=key, node_id=_NO_NODE, host="", port=_NO_NODE, error_code=code, error_message="")
        for key in call.request.coordinator_keys or ()
    ]
    return FindCoordinatorResponse(coordinators=rows)


_share_coordinator = needs_cluster(AclOperation.CLUSTER_ACTION, _refuse_keys)


def _with_operations(call: Call[Any], group: Any) -> Any:
    """The operations that this client may do: another gateway, which led the group, does not know the client."""
    if group.authorized_operations == NOT_ASKED:
        return group
    operations = call.context.policy.group_operations(group.group_id)
    return changed(group, "authorized_operations", bit_field(operations))


def _operations_of_groups(call: Call[DescribeGroupsRequest | ConsumerGroupDescribeRequest], handle: Handle) -> Reply:
    if not call.request.include_authorized_operations:
        return handle(call)
    return changing(handle(call.asking(call.request)), "groups", partial(_with_operations, call))


def _refused_group(call: Call, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    _refuse_description(call, group_id)
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id, error_code=_GROUP_DENIED, authorized_operations=NOT_ASKED
    )


DESCRIBE_GROUPS = chain(NeedsEach("groups", _may_describe, "groups", _refused_group), _operations_of_groups)


def list_groups(call: Call[ListGroupsRequest], handle: Handle) -> Reply:
    if may_cluster(call, AclOperation.DESCRIBE):
        return handle(call)

    return showing(handle(call.asking(call.request)), "groups", lambda row: _may_describe(call, row.group_id))


def _refused_deletion(call: Call, group_id: str) -> DeleteGroupsResponse.DeletableGroupResult:
    call.count_denied(AclOperation.DELETE, ResourceType.GROUP, group_id)
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=_GROUP_DENIED)


def _may_delete(call: Call, group_id: str) -> bool:
    return may(call, AclOperation.DELETE, ResourceType.GROUP, group_id)


DELETE_GROUPS = NeedsEach("groups_names", _may_delete, "results", _refused_deletion, once=str)

# KIP-848


def _subscribed_topics(call: Call[ConsumerGroupHeartbeatRequest], handle: Handle) -> Reply:
    """Checks names; the coordinator lets expressions match only topics that the client may describe (KAFKA-18813).

    Members with the same expression share what it matches: topics beyond the rights of this client are left out here.
    So are those that a gateway of an older version assigns, which does not ask for the rights of clients of others.
    """
    names = call.request.subscribed_topic_names or ()
    if len(names) > MAX_TOPIC_NAMES:
        return handle(call)  # The coordinator refuses it.
    if len(names) > AT_ONCE:
        return Reply.after(_many_subscribed_topics(call, handle))
    denied = [name or "" for name in names if not _may_describe_topic(call, name or "")]
    _hide_topics(call, denied)
    return _subscribed(call, handle, is_denied=bool(denied))


async def _many_subscribed_topics(call: Call[ConsumerGroupHeartbeatRequest], handle: Handle) -> Reply:
    is_denied = False
    async for name in sliced(call.request.subscribed_topic_names or ()):
        if not _may_describe_topic(call, name or ""):
            _hide_topics(call, [name or ""])
            is_denied = True
    return _subscribed(call, handle, is_denied=is_denied)


def _subscribed(call: Call[ConsumerGroupHeartbeatRequest], handle: Handle, *, is_denied: bool) -> Reply:
    if is_denied:
        return Reply(ConsumerGroupHeartbeatResponse(error_code=_TOPIC_DENIED))
    reply = handle(call.asking(call.request))
    return Reply.later(run_waiting(_describable(call, reply), reply))


async def _describable(call: Call, reply: Reply) -> ConsumerGroupHeartbeatResponse:
    """A topic may be unknown here although the coordinator knows it. The client then asks again for everything: an
    answer without that topic would be its last one, as the coordinator does not repeat what has not changed."""
    response = await reply.result()
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    if response.assignment is None:
        return response
    rows = []
    for row in response.assignment.topic_partitions:
        name = await _name_or_none(call, row.topic_id)
        if name is None:
            return ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error_message="Assigned topics are being looked up."
            )
        if _may_describe_topic(call, name):
            rows.append(row)
    return changed(response, "assignment", changed(response.assignment, "topic_partitions", rows))  # type: ignore[no-any-return]


async def _name_or_none(call: Call, topic_id: uuid.UUID | None) -> str | None:
    try:
        return await topic_name(call, topic_id)
    except PulsarError:
        return None


CONSUMER_GROUP_HEARTBEAT = chain(_reads_group(with_error), _subscribed_topics)

_DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
_UNDESCRIBABLE = "The group has described topic(s) that the client is not authorized to describe."


def _refused_consumer_group(call: Call, group_id: str) -> _DescribedGroup:
    _refuse_description(call, group_id)
    return _DescribedGroup(group_id=group_id, error_code=_GROUP_DENIED, authorized_operations=NOT_ASKED)


def _topics_of_groups(call: Call[ConsumerGroupDescribeRequest], handle: Handle) -> Reply:
    """A group is not described if it reads topics that the client may not describe. Its members may name very many."""

    async def shown(group: _DescribedGroup) -> _DescribedGroup:
        denied = [name async for name in sliced(await _names_in(group)) if not _may_describe_topic(call, name)]
        if not denied:
            return group
        async for name in sliced(denied):
            _hide_topics(call, [name])
        return _DescribedGroup(
            group_id=group.group_id, error_code=_TOPIC_DENIED, error_message=_UNDESCRIBABLE,
            authorized_operations=NOT_ASKED,
        )  # fmt: skip

    async def all_shown(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        rows = [await shown(group) async for group in sliced(response.groups)]
        return changed(response, "groups", rows)  # type: ignore[no-any-return]

    return handle(call.asking(call.request)).then_in_slices(all_shown)


async def _names_in(group: _DescribedGroup) -> set[str]:
    """The topics that the members of a group name, and those that they are assigned."""
    slices, names, seen = Slices(), set[str](), set[int]()
    for member in group.members:
        await slices.pause()
        for assignment in (member.assignment, member.target_assignment):
            names.update(row.topic_name for row in (assignment.topic_partitions if assignment else ()))
        if id(member.subscribed_topic_names) not in seen:  # members with equal subscriptions share a list
            seen.add(id(member.subscribed_topic_names))
            names.update(member.subscribed_topic_names)
    return names


CONSUMER_GROUP_DESCRIBE = chain(
    NeedsEach("group_ids", _may_describe, "groups", _refused_consumer_group),
    _operations_of_groups,
    _topics_of_groups,
)
