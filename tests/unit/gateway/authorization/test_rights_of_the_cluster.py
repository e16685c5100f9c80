"""Without a right on the cluster, no request that changes it is handled, and each row of the response has the error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.api_key import ApiKey

from gateway.authorization.table import GUARDS
from gateway.config.gateway_config import Config
from gateway.handlers.table import APIS
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, RequestContext
from gateway.requests.policy import AllAllowed
from gateway.requests.reply import Reply
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from protocol.kafka.messages.topics import AlterPartitionReassignmentsRequest, ElectLeadersRequest

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
Right = tuple[AclOperation, ResourceType, str]


class AllBut(AllAllowed):
    def __init__(self, denied: Right) -> None:
        self._denied = denied

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) != self._denied


def call_of(api_key: int, request: Any, denied: Right) -> Call[Any]:
    topics = SimpleNamespace(cached_name={1: "seen", 2: "hidden"}.get)
    cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), topics=topics))
    context = RequestContext(Client("192.0.2.7:1"), Listener(""), cluster, policy=AllBut(denied))
    api = APIS[api_key]
    return Call(api, api.max_version, 0, None, request, context)


def handled(call: Call[Any]) -> tuple[bool, Any]:
    """Whether the handler was called, and the response."""
    asked = []

    def handle(call: Call[Any]) -> Reply:
        asked.append(call)
        return Reply(call.api.response())

    reply = GUARDS[call.api.key](call, handle)
    return bool(asked), reply.response


_Acl, _Filter = CreateAclsRequest.AclCreation, DeleteAclsRequest.DeleteAclsFilter
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Entry = AlterClientQuotasRequest.EntryData
CHANGES: list[tuple[int, Any, AclOperation, str | None]] = [
    (ApiKey.CreateAcls, CreateAclsRequest(creations=[_Acl(), _Acl()]), AclOperation.ALTER, "results"),
    (ApiKey.DeleteAcls, DeleteAclsRequest(filters=[_Filter(), _Filter()]), AclOperation.ALTER, "filter_results"),
    (
        ApiKey.AlterUserScramCredentials,
        AlterUserScramCredentialsRequest(deletions=[_Deletion(name="a"), _Deletion(name="b")], upsertions=[]),
        AclOperation.ALTER,
        "results",
    ),
    (
        ApiKey.AlterClientQuotas,
        AlterClientQuotasRequest(entries=[_Entry(entity=[], ops=[]), _Entry(entity=[], ops=[])]),
        AclOperation.ALTER_CONFIGS,
        "entries",
    ),
    (ApiKey.ElectLeaders, ElectLeadersRequest(topic_partitions=None), AclOperation.ALTER, None),
    (ApiKey.AlterPartitionReassignments, AlterPartitionReassignmentsRequest(topics=[]), AclOperation.ALTER, None),
]  # fmt: skip


@pytest.mark.parametrize(("api_key", "request_", "operation", "rows"), CHANGES)
def test_a_right_of_the_cluster_is_needed(
    api_key: int, request_: Any, operation: AclOperation, rows: str | None
) -> None:
    denied = operation, ResourceType.CLUSTER, CLUSTER_NAME
    call = call_of(api_key, request_, denied)
    was_asked, response = handled(call)
    assert not was_asked
    codes = [response.error_code] if rows is None else [row.error_code for row in getattr(response, rows)]
    assert codes == [DENIED] * (1 if rows is None else 2)
    for other in (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION):
        was_asked, _ = handled(call_of(api_key, request_, (other, ResourceType.CLUSTER, CLUSTER_NAME)))
        assert was_asked, "no other right is asked for"


async def test_an_expression_matches_no_hidden_topic() -> None:
    """KAFKA-18813: a client that may not describe a topic must not find it with a regular expression."""
    row = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions
    assigned = [row(topic_id=cast(Any, number), partitions=[0]) for number in (1, 2)]
    answer = ConsumerGroupHeartbeatResponse(
        assignment=ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=assigned)
    )
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_regex=".*")
    call = call_of(ApiKey.ConsumerGroupHeartbeat, request, (AclOperation.DESCRIBE, ResourceType.TOPIC, "hidden"))
    response: Any = await GUARDS[ApiKey.ConsumerGroupHeartbeat](call, lambda _: Reply(answer)).result()
    assert [each.topic_id for each in response.assignment.topic_partitions] == [1]
    named = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["seen", "hidden"])
    call = call_of(ApiKey.ConsumerGroupHeartbeat, named, (AclOperation.DESCRIBE, ResourceType.TOPIC, "hidden"))
    refused: Any = await GUARDS[ApiKey.ConsumerGroupHeartbeat](call, lambda _: Reply(answer)).result()
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and refused.assignment is None
