"""The namespace that is served: made if it is missing, and refused if it would lose data (DESIGN D1, §3)."""

from __future__ import annotations

import structlog

from gateway.config import PulsarSection
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_http import AdminError

INTERCEPTOR = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"

log = structlog.get_logger()


class UnfitCluster(Exception):
    """Pulsar is not set up so that a Kafka log can be kept in it; the text says what to change."""


async def prepare_namespace(admin: AdminClient, settings: PulsarSection) -> None:
    """Raises UnfitCluster, or PulsarError when Pulsar cannot be asked."""
    await _check_brokers(admin)
    namespace = settings.full_namespace
    if settings.tenant not in await admin.namespaces.list_tenants():
        await _unless_exists(admin.namespaces.create_tenant(settings.tenant, await admin.brokers.clusters()))
    if namespace not in await admin.namespaces.list_namespaces(settings.tenant):
        await _unless_exists(admin.namespaces.create(namespace, retention_minutes=settings.retention_minutes))
        log.info("namespace created", namespace=namespace, retention_minutes=settings.retention_minutes)
    _check_policies(namespace, await admin.namespaces.policies(namespace))


async def _unless_exists(creation: object) -> None:
    try:
        await creation  # type: ignore[misc]
    except AdminError as error:
        if not error.conflict:
            raise


async def _check_brokers(admin: AdminClient) -> None:
    try:
        settings = await admin.brokers.runtime_configuration()
    except AdminError as error:
        if error.status in {401, 403}:
            log.warning("broker settings cannot be read without superuser rights; make sure of them", error=str(error))
            return
        raise
    missing = []
    if INTERCEPTOR not in settings.get("brokerEntryMetadataInterceptors", ""):
        missing.append(f"brokerEntryMetadataInterceptors={INTERCEPTOR}")
    if settings.get("exposingBrokerEntryMetadataToClientEnabled") != "true":
        missing.append("exposingBrokerEntryMetadataToClientEnabled=true")
    if missing:
        raise UnfitCluster("the Pulsar brokers need in broker.conf: " + " and ".join(missing))


def _check_policies(namespace: str, policies: dict[str, object]) -> None:
    inactive = policies.get("inactive_topic_policies")
    if not isinstance(inactive, dict) or inactive.get("deleteWhileInactive", True):
        raise UnfitCluster(
            f"namespace {namespace} lets brokers delete topics without subscriptions, data included; set its inactive "
            "topic policies to deleteWhileInactive=false (pulsar-admin namespaces set-inactive-topic-policies)"
        )
    retention = policies.get("retention_policies")
    if not isinstance(retention, dict) or not retention.get("retentionTimeInMinutes"):
        raise UnfitCluster(
            f"namespace {namespace} has no retention: data that no subscription holds would be deleted at once; set it "
            "(pulsar-admin namespaces set-retention)"
        )
    retention_minutes = retention["retentionTimeInMinutes"]
    if retention_minutes > 0 and not policies.get("message_ttl_in_seconds"):
        log.warning(
            "groups that nobody uses any more hold data beyond the retention, because the namespace has no message TTL",
            namespace=namespace,
            remedy=f"pulsar-admin namespaces set-message-ttl {namespace} --messageTTL {retention_minutes * 60}",
        )
