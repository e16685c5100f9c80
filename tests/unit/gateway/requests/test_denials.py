"""The audit of denials: principal, operation and address; few lines a second, and none for hidden resources."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import structlog

from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher
from gateway.handlers.table import APIS
from gateway.observability.logs import LINES_PER_S
from gateway.observability.metrics import Metrics
from gateway.requests import denials
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, Principal
from gateway.security.acls import Requester
from gateway.security.authorizer import Authorizer
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode

CREATE_TOPICS = 19


class Nothing:
    """A policy that allows nothing."""

    def version(self) -> int:
        return 0

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return False

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return False


def call_of(listener: str = "outside") -> Call[Any]:
    cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), topics=None))
    dispatcher = Dispatcher(cluster, authorizer=cast(Authorizer, Nothing()))
    context = dispatcher.context(Client("192.0.2.7:5"), Listener(listener), Principal(name="alice"))
    api = APIS[CREATE_TOPICS]
    return Call(api, 0, 0, None, api.request(), context)


def deny(call: Call[Any], name: str = "orders") -> None:
    call.count_denied(AclOperation.CREATE, ResourceType.TOPIC, name)


def test_a_denial_has_a_line_in_each_request() -> None:
    call = call_of()
    with structlog.testing.capture_logs() as lines:
        deny(call)
        deny(call)  # another row of the same request
        deny(call.asking(call.request))  # a part of it
        deny(Call(call.api, 0, 1, None, call.request, call.context))
    assert lines == 2 * [
        {
            "event": "denied", "log_level": "info", "principal": "User:alice", "address": "192.0.2.7",
            "api": "CreateTopics", "operation": "CREATE", "resource_type": "TOPIC", "resource": "orders", "left_out": 0,
        }
    ]  # fmt: skip
    assert call.cluster.metrics._errors.labels("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")._value.get() == 4


def test_each_right_and_each_resource_has_a_line() -> None:
    call = call_of()
    with structlog.testing.capture_logs() as lines:
        for name in ("secret", "decoy", "secret"):
            deny(call, name)
        call.count_denied(AclOperation.DESCRIBE, ResourceType.GROUP, "secret")
    assert [(line["operation"], line["resource_type"], line["resource"]) for line in lines] == [
        ("CREATE", "TOPIC", "secret"), ("CREATE", "TOPIC", "decoy"), ("DESCRIBE", "GROUP", "secret"),
    ]  # fmt: skip


def test_what_is_not_shown_and_other_errors_have_none() -> None:
    call = call_of()
    with structlog.testing.capture_logs() as lines:
        assert not call.context.policy.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, "hidden")
        assert not call.context.policy.cluster_operations()
        call.count_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert lines == []


def test_lines_are_few_and_short() -> None:
    call = call_of()
    with structlog.testing.capture_logs() as lines:
        for number in range(LINES_PER_S * 3):
            deny(call, f"{number}" + "x" * 30_000)
    assert len(lines) <= LINES_PER_S * 2, "one second's, or those of two"
    assert max(len(line["resource"]) for line in lines) == denials.MAX_NAME_CHARACTERS


def test_few_names_of_a_request_are_kept() -> None:
    call, log = call_of(), denials.RequestDenials(denials.DenialLog())
    who = call.context.requester
    for number in range(10_000):
        log.denied(who, "Fetch", 1.0, (AclOperation.READ, ResourceType.TOPIC, f"{number}" + "x" * 30_000))
    assert len(log._named) == denials.MAX_NAMED
    assert max(len(name) for _, _, name in log._named) == denials.MAX_NAME_CHARACTERS


def test_what_another_gateway_forwards_was_judged_there() -> None:
    call = call_of("forwarding")
    with structlog.testing.capture_logs() as lines:
        assert call.context.policy.allows(AclOperation.CREATE, ResourceType.TOPIC, "orders")
        deny(call)
    assert lines == []
