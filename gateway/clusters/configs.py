"""Derives the configuration of one of several clusters from that of the gateway."""

from __future__ import annotations

from gateway.config.gateway_config import Config

INTERNAL_PARTITIONS = 1
"""Per internal topic. Each partition that is led holds a connection to a broker, and there may be many clusters."""


def with_share(config: Config) -> Config:
    """Reduce the limits to those of one cluster among several."""
    limits, share = config.limits, config.kafka.cluster_limits.max_share_percent
    shared = (
        "max_connections", "max_fetch_sessions", "requests_budget_bytes", "unread_budget_bytes", "fetch_budget_bytes",
        "max_security_bytes",
    )  # fmt: skip
    scaled = limits.model_copy(update={name: getattr(limits, name) * share // 100 for name in shared})
    return config.model_copy(update={"limits": scaled})


def of_cluster(config: Config, name: str) -> Config:
    """`name` is `tenant/namespace`."""
    tenant, _, namespace = name.partition("/")
    return with_share(config).model_copy(
        update={
            "pulsar": config.pulsar.model_copy(
                update={"tenant": tenant, "namespace": namespace, "system_namespace": None}
            ),
            "kafka": config.kafka.model_copy(update={"cluster_id": None}),
            "groups": config.groups.model_copy(update={"offsets_topic_partitions": INTERNAL_PARTITIONS}),
            "transactions": config.transactions.model_copy(update={"state_topic_partitions": INTERNAL_PARTITIONS}),
        }
    )
