"""Shared by AlterConfigs and IncrementalAlterConfigs: the types of resources, and what no client may alter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.repeated import times_of
from gateway.topics import topic_names
from gateway.topics.config_values import INT_MAX, parse_number
from protocol.kafka.errors import ErrorCode


class _Resource(Protocol):
    """A resource as both requests name it."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]: ...


Resource = TypeVar("Resource", bound=_Resource)
Row_co = TypeVar("Row_co", covariant=True)


class _MakeRow(Protocol[Row_co]):
    """The class of a response's rows."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> Row_co: ...


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


MAX_CONFIGS = 1_000
"""Far more than any resource has: those of one resource are processed in one step."""
CLIENT_METRICS_CONFIGS = frozenset({"interval.ms", "metrics", "match"})


async def alter_all(
    call: Call, resources: Sequence[Resource], alter: Callable[[Resource], Awaitable[None]], row: _MakeRow[Row_co]
) -> list[Row_co]:
    """Alter each resource separately, and return the rows of the answer."""
    named = await times_of((resource.resource_type, resource.resource_name) for resource in resources)

    async def altered(resource: Resource) -> Row_co:
        code, text = ErrorCode.NONE, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise invalid("Each resource must appear at most once.")
            await alter(resource)
        except (KafkaError, PulsarError) as error:
            code, text = error_code(error), str(error)
            call.count_error(code)
        kind, name = resource.resource_type, resource.resource_name
        return row(error_code=code, error_message=text, resource_type=kind, resource_name=name)

    return await fan_out(altered, resources, at_once=1)


def check_count(resource: _Resource) -> None:
    """Raises KafkaError."""
    if len(resource.configs) > MAX_CONFIGS:
        raise invalid(f"At most {MAX_CONFIGS} configurations of a resource may be altered at once.")


def check_names(names: Sequence[str], nameless: Collection[str]) -> None:
    """Raises KafkaError INVALID_REQUEST if a configuration appears twice, or has no value."""
    if len(set(names)) < len(names):
        raise invalid("Error due to duplicate config keys")
    if nameless:
        raise invalid(f"Null value not supported for : {', '.join(nameless)}")


def check_broker_name(call: Call, resource: _Resource) -> None:
    """Raises KafkaError if the resource is another broker."""
    if resource.resource_type == ResourceType.BROKER:
        check_broker(call, resource.resource_name)


def check_topic_name(name: str) -> None:
    """Raises KafkaError for an invalid name, and for a topic whose configuration no client may alter."""
    if not name:
        raise invalid("Default topic resources are not allowed.")
    reason = topic_names.invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name in topic_names.INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The configuration of internal topic {name} is fixed.")


def check_group_name(name: str) -> None:
    """Raises KafkaError for a name that no group can have."""
    if not name:
        raise invalid("Default group resources are not allowed.")


def refuse_broker(call: Call, name: str, changed: Collection[str]) -> None:
    """Raises KafkaError for any change: a gateway's settings, and a fleet's (no name), come from its configuration."""
    check_broker(call, name)
    if changed:
        raise invalid(f"Cannot update these configs dynamically: Set({', '.join(changed)})")


def refuse_client_metrics(name: str, changed: Collection[str]) -> None:
    """Raises KafkaError for any change: the gateway requests no metrics from clients (KIP-714)."""
    if not name:
        raise invalid("Subscription name can't be empty")
    for each in changed:
        if each not in CLIENT_METRICS_CONFIGS:
            raise invalid(f"Unknown client metrics configuration: {each}")
        raise invalid("Client metrics subscriptions are not served by this gateway")


async def stop_writers(cluster: Cluster, topic: str) -> None:
    """Return when no gateway writes to the topic, which is hidden already."""
    await asyncio.gather(cluster.logs.forget_topic(topic), cluster.group_service.leave_topic_everywhere(topic))


def check_broker(call: Call, name: str) -> None:
    node_id = Brokers(call).own_id
    if name and broker_id(name, "Node id") != node_id:
        raise invalid(f"Unexpected broker id, expected {node_id}, but received {name}")


def broker_id(name: str, what: str) -> int:
    """Raises KafkaError."""
    node_id = parse_number(name, INT_MAX)
    if node_id is None:
        raise invalid(f"{what} must be an integer, but it is: {name}")
    return node_id


def unknown_type(kind: int) -> KafkaError:
    return invalid(f"Unknown resource type {kind}")


def invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
