"""What the conformance tests of ACLs share: two servers with an authorizer, and the ACLs of a case.

Both servers allow access to resources without ACLs (`allow.everyone.if.no.acl.found`), so that the only client,
`User:ANONYMOUS`, can create the topics and the ACLs of the cases.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.kafka import KafkaBroker
from tests.conformance.conversation import READY_WITHIN_S, Conversation, Pair, Server
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, running

ME = "User:ANONYMOUS"
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
DENY, ALLOW = 2, 3
CLUSTER_DENIED_CODE = 31
DENIED_HOST = "127.0.0.2"
ACL_VERSIONS = range(4)
KAFKA_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:root",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


@contextmanager
def servers_with_acls(pulsar: SecuredPulsar, work_dir: Path) -> Iterator[Pair]:
    """Two servers whose cluster is open."""
    authorization = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True, "super_users": ["User:root"]}
    run = uuid.uuid4().hex[:6]
    gateway_of_its_own = gateway_on(
        pulsar, work_dir / "gateway", pulsar={"namespace": f"acls-{run}"}, authorization=authorization
    )
    with (
        running(KafkaBroker(work_dir / "kafka", settings=KAFKA_SETTINGS)) as kafka,
        running(gateway_of_its_own) as gateway,
    ):
        pair = Pair(
            Server("kafka", kafka.bootstrap, f"c{run}k-"), Server("gateway", gateway.bootstrap, f"c{run}g-"),
            apply_table=False,
        )  # fmt: skip
        for server in (pair.kafka, pair.gateway):
            _open_new_cluster(server)
        yield pair


def acl(name: str, operation: int, permission: int = ALLOW, **more: Any) -> dict[str, Any]:
    """An ACL, by default of a topic."""
    return {
        "resource_type": TOPIC, "resource_name": name, "resource_pattern_type": LITERAL, "principal": ME, "host": "*",
        "operation": operation, "permission_type": permission,
    } | more  # fmt: skip


def acl_filter(name: str | None = None, **more: Any) -> dict[str, Any]:
    """A filter, by default for all ACLs of all resources."""
    return {
        "resource_type_filter": ANY, "resource_name_filter": name, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    } | more  # fmt: skip


def create(conversation: Conversation, *wanted: dict[str, Any]) -> None:
    """Create ACLs. The response is not compared: Kafka's broker learns of it from its controller a moment later."""
    answer = conversation.client.call("CreateAcls", 3, creations=list(wanted))
    assert not any(row["error_code"] for row in answer["results"]), answer
    for each in wanted:
        await_acls(conversation, each["resource_name"], {each["operation"]}.issubset)


def await_acls(conversation: Conversation, name: str | None, holds: Callable[[set[int]], bool]) -> None:
    """Wait until the operations of a resource's ACLs, or of all ACLs, satisfy `holds`."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call("DescribeAcls", 3, **acl_filter(name))
        if answer["error_code"] == CLUSTER_DENIED_CODE and name == "kafka-cluster":
            return  # the client may have no right to see it
        if holds({row["operation"] for resource in answer["resources"] for row in resource["acls"]}):
            return
        time.sleep(0.02)
    raise AssertionError(answer)


def name_of(conversation: Conversation, kind: str) -> str:
    """A name that no other case uses."""
    return f"{conversation.names.prefix}{kind}-{uuid.uuid4()}"


def two_topics(conversation: Conversation, kind: str) -> tuple[str, str]:
    """A topic where all is allowed, and one where all is denied."""
    allowed, denied = conversation.topic(f"{kind}-allowed"), conversation.topic(f"{kind}-denied")
    conversation.start_here(allowed)
    create(conversation, acl(denied, ALL, DENY))
    return allowed, denied


def without_acls(conversation: Conversation, name: str) -> None:
    """Delete the ACLs, so that the next case may prepare the topic."""
    conversation.client.call("DeleteAcls", 3, filters=[acl_filter(name)])
    await_acls(conversation, name, lambda found: not found)


def deny_all_of_cluster(operation: int) -> dict[str, Any]:
    return acl("kafka-cluster", operation, DENY, resource_type=CLUSTER)


ALL_OF_CLUSTER = acl("kafka-cluster", ALL, resource_type=CLUSTER)
"""An ACL of the cluster removes all other access to it, also that of Kafka's own broker and controller, which are
anonymous."""


def _open_new_cluster(server: Server) -> None:
    conversation = Conversation(server)
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        answer = conversation.client.call("CreateAcls", 3, creations=[ALL_OF_CLUSTER])
        if not answer["results"][0]["error_code"] or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    await_acls(conversation, "kafka-cluster", lambda found: ALL in found)
    conversation.when_loaded("FindCoordinator", 0, key="group")
    conversation.when_loaded("OffsetFetch", 5, group_id="group", topics=[])
    conversation.close()


def open_cluster(conversation: Conversation) -> None:
    denials = acl_filter("kafka-cluster", permission_type=DENY)
    conversation.client.call("DeleteAcls", 3, filters=[denials])
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call("DescribeAcls", 3, **acl_filter("kafka-cluster"))
        if not answer["error_code"] and sum(len(row["acls"]) for row in answer["resources"]) == 1:
            return
        time.sleep(0.02)
    raise AssertionError(answer)


@contextmanager
def where_denied(conversation: Conversation, *operations: int) -> Iterator[None]:
    """Inside, the client has another address, to which these operations on the cluster are denied. Its usual address
    keeps its rights, for the clean-up and for Kafka's own broker and controller."""
    denials = [deny_all_of_cluster(operation) | {"host": DENIED_HOST} for operation in operations]
    create(conversation, *denials)
    usual, conversation.client = conversation.client, conversation.connect(source=DENIED_HOST)
    try:
        yield
    finally:
        conversation.client = usual
        open_cluster(conversation)


def denied_group(conversation: Conversation, operation: int = CREATE) -> str:
    """A group with this right only; Create has no effect on groups."""
    group = name_of(conversation, f"group-{operation}")
    create(conversation, acl(group, operation, resource_type=GROUP))
    return group


def denied_transaction(conversation: Conversation, operation: int = CREATE) -> str:
    """A transactional id with this right only; Create has no effect on it."""
    transactional_id = name_of(conversation, f"transaction-{operation}")
    create(conversation, acl(transactional_id, operation, resource_type=TRANSACTIONAL_ID))
    return transactional_id
