"""The namespaces of a gateway: created if they do not exist, and refused if they would lose data.

Topics of clients are in one namespace. The state of the gateways (`~gateways`, `__consumer_offsets`) is in a system
namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import structlog

from gateway.backoff import Backoff, retried
from gateway.config.gateway_config import PulsarSection
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.topics.topic_names import CONSUMER_OFFSETS

INTERCEPTOR = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
TIME_INTERCEPTOR = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
KEEP_FOR_EVER = -1
_FORBIDDEN = frozenset({401, 403})
CREATED_BESIDE_S = 5.0
"""What another gateway creates at the same time is known to each broker after this time."""
_BESIDE_PAUSE_S, _LONGEST_BESIDE_PAUSE_S = 0.02, 0.5
_COPIED_POLICIES = ("replication_clusters", "persistence")
"""Policies of the clients' namespace that are copied, so that the gateways' state is stored as safely."""

log = structlog.get_logger()
T = TypeVar("T")


class UnsupportedCluster(Exception):
    """Pulsar's settings do not allow to keep a Kafka log in it. The text says what to change."""


async def prepare_namespaces(admin: AdminClient, settings: PulsarSection, *, create: bool = True) -> None:
    """With `create`, the namespace of the topics is created, too, if it does not exist.

    Raises UnsupportedCluster, or PulsarError if Pulsar cannot be reached."""
    brokers = await _check_brokers(admin)
    namespace, system = settings.full_namespace, settings.full_system_namespace
    policies = await _policies(admin, namespace)
    if policies is None and not create:
        raise UnsupportedCluster(f"namespace {namespace} does not exist")
    if policies is None:
        await _create_tenant(admin, settings.tenant)
        policies = await _create(admin, namespace, settings.retention_minutes)
    _check_policies(namespace, policies)
    _warn_of_auto_creation(namespace, policies, brokers)
    _warn_of_other_retention(namespace, policies, settings.retention_minutes)
    _warn_of_publish_times(namespace, policies, brokers)
    if system == namespace:
        return
    system_policies = await _policies(admin, system)
    if system_policies is None:
        await _check_no_offsets(admin, namespace, system)
        copied = {name: policies[name] for name in _COPIED_POLICIES if policies.get(name)}
        system_policies = await _create(admin, system, KEEP_FOR_EVER, copied)
    _check_policies(system, system_policies)


async def _policies(admin: AdminClient, namespace: str) -> dict[str, Any] | None:
    """None if the namespace does not exist. Unlike a list of tenants, this needs only rights for the tenant."""
    try:
        return await admin.namespaces.policies(namespace)
    except AdminError as error:
        if not error.not_found:
            raise
        return None


async def _create_tenant(admin: AdminClient, tenant: str) -> None:
    """Create the tenant if it does not exist. An administrator of a tenant has no right to create tenants."""
    try:
        clusters = await admin.brokers.clusters()
        await _beside_others({500}, lambda: _unless_exists(admin.namespaces.create_tenant(tenant, clusters)))
    except AdminError as error:
        if error.status not in _FORBIDDEN:
            raise
        log.info("tenants cannot be created without superuser rights", tenant=tenant)


async def _create(
    admin: AdminClient, namespace: str, retention_minutes: int, more_policies: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Create a namespace, and return its policies."""

    async def create() -> None:
        await _unless_exists(
            admin.namespaces.create(namespace, retention_minutes=retention_minutes, more_policies=more_policies)
        )

    try:
        await _beside_others({404, 500}, create)
    except AdminError as error:
        if error.status not in _FORBIDDEN | {404}:
            raise
        raise UnsupportedCluster(
            f"namespace {namespace} is missing, and cannot be created ({error}); create it, or give the gateway's role "
            "the right of a tenant administrator (pulsar-admin tenants update --admin-roles)"
        ) from error
    log.info("namespace created", namespace=namespace, retention_minutes=retention_minutes)
    return await _beside_others({404}, lambda: admin.namespaces.policies(namespace))


async def _beside_others(statuses: set[int], attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat an attempt that fails with one of the statuses: gateways that start together create the same names.

    Pulsar refuses the second creation with status 409, or with 500 (BadVersion). A broker that has just looked for the
    name answers 404 for a moment: it has cached that there is none.
    """
    return await retried(
        attempt,
        lambda error: isinstance(error, AdminError) and error.status in statuses,
        Backoff(_BESIDE_PAUSE_S, _LONGEST_BESIDE_PAUSE_S),
        within_s=CREATED_BESIDE_S,
    )


async def _unless_exists(creation: Awaitable[None]) -> None:
    try:
        await creation
    except AdminError as error:
        if not error.conflict:
            raise


async def _check_no_offsets(admin: AdminClient, namespace: str, system: str) -> None:
    """With a new system namespace, groups would lose the offsets that they have committed in the other one."""
    try:
        found = await admin.topics.partitioned(f"persistent://{namespace}/{CONSUMER_OFFSETS}")
    except AdminError as error:
        if not error.not_found:
            raise
        return
    if found.partitions:
        raise UnsupportedCluster(
            f"the offsets of groups are in {namespace}/{CONSUMER_OFFSETS}, and {system} does not exist; to go on with "
            f'them, set system_namespace = "{namespace.rpartition("/")[2]}" in [pulsar]'
        )


async def _check_brokers(admin: AdminClient) -> Mapping[str, str]:
    """The brokers' settings; none if the gateway has no right to read them."""
    try:
        settings = await admin.brokers.runtime_configuration()
    except AdminError as error:
        if error.status in _FORBIDDEN:
            log.warning("broker settings cannot be read without superuser rights; please check them", error=str(error))
            return {}
        raise
    missing = []
    if INTERCEPTOR not in settings.get("brokerEntryMetadataInterceptors", ""):
        missing.append(f"brokerEntryMetadataInterceptors={INTERCEPTOR}")
    if settings.get("exposingBrokerEntryMetadataToClientEnabled") != "true":
        missing.append("exposingBrokerEntryMetadataToClientEnabled=true")
    if missing:
        raise UnsupportedCluster("the Pulsar brokers need in broker.conf: " + " and ".join(missing))
    return settings


def _check_policies(namespace: str, policies: Mapping[str, Any]) -> None:
    inactive = policies.get("inactive_topic_policies")
    if not isinstance(inactive, dict) or inactive.get("deleteWhileInactive", True):
        raise UnsupportedCluster(
            f"namespace {namespace} lets brokers delete topics without subscriptions, data included; set its inactive "
            "topic policies to deleteWhileInactive=false (pulsar-admin namespaces set-inactive-topic-policies)"
        )
    retention = policies.get("retention_policies")
    if not isinstance(retention, dict) or not retention.get("retentionTimeInMinutes"):
        raise UnsupportedCluster(
            f"namespace {namespace} has no retention: data without a subscription would be deleted at once; set it "
            "(pulsar-admin namespaces set-retention)"
        )
    retention_minutes = retention["retentionTimeInMinutes"]
    if retention_minutes > 0 and not policies.get("message_ttl_in_seconds"):
        log.warning(
            "unused groups keep data beyond the retention time, because the namespace has no message TTL",
            namespace=namespace,
            remedy=f"pulsar-admin namespaces set-message-ttl {namespace} --messageTTL {retention_minutes * 60}",
        )


def _warn_of_other_retention(namespace: str, policies: Mapping[str, Any], shown_minutes: int) -> None:
    kept_minutes = policies["retention_policies"]["retentionTimeInMinutes"]
    if kept_minutes != shown_minutes:
        log.warning(
            "clients see another default of retention.ms than the namespace has; topics with retention.bytes get it",
            namespace=namespace,
            remedy=f"set retention_minutes = {kept_minutes} in [pulsar]",
        )


def _warn_of_publish_times(namespace: str, policies: Mapping[str, Any], brokers: Mapping[str, str]) -> None:
    """Pulsar searches a log by time as if publish times only increased, but copies keep those of their source."""
    interceptors = brokers.get("brokerEntryMetadataInterceptors", TIME_INTERCEPTOR)  # None are known without the right
    if len(policies.get("replication_clusters") or ()) > 1 and TIME_INTERCEPTOR not in interceptors:
        log.warning(
            "in large partitions, searches by time may miss records, where others were replicated late",
            namespace=namespace,
            remedy=f"brokerEntryMetadataInterceptors={INTERCEPTOR},{TIME_INTERCEPTOR} in broker.conf",
        )


def _warn_of_auto_creation(namespace: str, policies: Mapping[str, Any], brokers: Mapping[str, str]) -> None:
    own = policies.get("autoTopicCreationOverride")
    allowed = brokers.get("allowAutoTopicCreation", "true") == "true"
    if isinstance(own, dict):
        allowed = own.get("allowAutoTopicCreation", False)
    if allowed:
        log.warning(
            "producers that connect again may bring partitions back that clients have just deleted; such a topic can "
            "neither be created nor deleted (apache/pulsar#24571)",
            namespace=namespace,
            remedy=f"pulsar-admin namespaces set-auto-topic-creation {namespace} --disable",
        )
