"""Guards of configurations, of requests about the whole cluster, and of security itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.authorization.guard import (
    MESSAGES,
    NeedsEach,
    changed,
    may,
    needs_cluster,
    with_error,
    with_error_and_text,
)
from gateway.fan_out import SORTED_AT_ONCE, sliced
from gateway.handlers.cluster import alter_configs, incremental_alter_configs
from gateway.requests.call import Call, Guard, Handle
from gateway.requests.config_resources import ResourceType as ConfigResource
from gateway.requests.denials import DENIED
from gateway.requests.repeated import times_of
from gateway.requests.reply import Reply
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import (
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from protocol.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_OF_CONFIGS = {
    ConfigResource.TOPIC: ResourceType.TOPIC,
    ConfigResource.GROUP: ResourceType.GROUP,
    ConfigResource.BROKER: ResourceType.CLUSTER,
    ConfigResource.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResource.CLIENT_METRICS: ResourceType.CLUSTER,
}
"""By type of configuration: the type of resource for which a right is needed. The handler refuses all other types."""


def _resource(row: Any) -> tuple[ResourceType, str]:
    resource_type = _OF_CONFIGS[row.resource_type]
    return resource_type, CLUSTER_NAME if resource_type is ResourceType.CLUSTER else row.resource_name


def _may(call: Call, operation: AclOperation, row: Any) -> bool:
    return row.resource_type not in _OF_CONFIGS or may(call, operation, *_resource(row))


def _refuse_row(operation: AclOperation, row_class: type[Any], call: Call, row: Any) -> Any:
    resource_type, name = _resource(row)
    call.count_denied(operation, resource_type, name)
    code = DENIED[resource_type]
    return row_class(
        error_code=code, error_message=MESSAGES[code], resource_type=row.resource_type, resource_name=row.resource_name
    )


def describe_configs(call: Call[DescribeConfigsRequest], handle: Handle) -> Reply:
    return Reply.after(_describe_configs(call, handle))


async def _describe_configs(call: Call[DescribeConfigsRequest], handle: Handle) -> Reply:
    """One type that nobody knows fails the whole request, before any right is looked at."""
    async for row in sliced(call.request.resources):
        if row.resource_type not in _OF_CONFIGS:
            return handle(call)
    return _DESCRIBE_CONFIGS(call, handle)


_DESCRIBE_CONFIGS = NeedsEach(
    "resources", lambda call, row: _may(call, AclOperation.DESCRIBE_CONFIGS, row), "results",
    partial(_refuse_row, AclOperation.DESCRIBE_CONFIGS, DescribeConfigsResponse.DescribeConfigsResult),
)  # fmt: skip


def _alters_configs(row_class: type[Any], is_wrong: Callable[[Call[Any], Any], bool]) -> Guard:
    """What no client may ask for is refused by the handler, as in Kafka: its error comes before the denial."""
    right = AclOperation.ALTER_CONFIGS
    refuse = partial(_refuse_row, right, row_class)

    async def guarded(call: Call[Any], handle: Handle) -> Reply:
        times = await times_of((row.resource_type, row.resource_name) for row in call.request.resources)

        def passes(call: Call, row: Any) -> bool:
            return times[row.resource_type, row.resource_name] > 1 or _may(call, right, row) or is_wrong(call, row)

        return NeedsEach("resources", passes, "responses", refuse)(call, handle)

    return lambda call, handle: Reply.after(guarded(call, handle))


ALTER_CONFIGS = _alters_configs(AlterConfigsResponse.AlterConfigsResourceResponse, alter_configs.is_wrong)
INCREMENTAL_ALTER_CONFIGS = _alters_configs(
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, incremental_alter_configs.is_wrong
)
LIST_CONFIG_RESOURCES = needs_cluster(AclOperation.DESCRIBE_CONFIGS, with_error)
DESCRIBE_LOG_DIRS = needs_cluster(AclOperation.DESCRIBE, with_error)

# Security


def _refuse_creations(call: Call[CreateAclsRequest], code: ErrorCode) -> CreateAclsResponse:
    row = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(
        results=[row(error_code=code, error_message=MESSAGES[code])] * len(call.request.creations)
    )


def _refuse_deletions(call: Call[DeleteAclsRequest], code: ErrorCode) -> DeleteAclsResponse:
    row = DeleteAclsResponse.DeleteAclsFilterResult
    results = [row(error_code=code, error_message=MESSAGES[code])] * len(call.request.filters)
    return DeleteAclsResponse(filter_results=results)


def _refuse_credentials(
    call: Call[AlterUserScramCredentialsRequest], code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = {each.name for each in call.request.deletions} | {each.name for each in call.request.upsertions}
    in_order = sorted(users) if len(users) <= SORTED_AT_ONCE else users  # to sort more would stop all threads
    results = [row(user=user, error_code=code, error_message=MESSAGES[code]) for user in in_order]
    return AlterUserScramCredentialsResponse(results=results)


def _refuse_scram_description(
    call: Call[DescribeUserScramCredentialsRequest], code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """As in Kafka, a row for each user, without names."""
    row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    rows = [row(error_code=code, error_message=None)] * len(call.request.users or ())
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=MESSAGES[code], results=rows)


def _refuse_quotas(call: Call[AlterClientQuotasRequest], code: ErrorCode) -> AlterClientQuotasResponse:
    row = AlterClientQuotasResponse.EntryData
    entries = [
        row(
            error_code=code, error_message=MESSAGES[code],
            entity=[
                row.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
            ],
        )
        for entry in call.request.entries
    ]  # fmt: skip
    return AlterClientQuotasResponse(entries=entries)


def _refuse_quota_description(call: Call, code: ErrorCode) -> Any:
    return changed(with_error_and_text(call, code), "entries", None)


DESCRIBE_ACLS = needs_cluster(AclOperation.DESCRIBE, with_error_and_text)
CREATE_ACLS = needs_cluster(AclOperation.ALTER, _refuse_creations)
DELETE_ACLS = needs_cluster(AclOperation.ALTER, _refuse_deletions)
DESCRIBE_SCRAM = needs_cluster(AclOperation.DESCRIBE, _refuse_scram_description)
ALTER_SCRAM = needs_cluster(AclOperation.ALTER, _refuse_credentials)
DESCRIBE_QUOTAS = needs_cluster(AclOperation.DESCRIBE_CONFIGS, _refuse_quota_description)
ALTER_QUOTAS = needs_cluster(AclOperation.ALTER_CONFIGS, _refuse_quotas)
