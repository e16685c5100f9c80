"""The gateway's configuration (TOML), with all limits, and checks that the limits fit together."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from coordinator.fleet.times import FleetTimes
from gateway.config.clusters import SYSTEM_SUFFIX, ClusterLimits, ClusterSection, check_clusters
from gateway.config.limits import Limits
from gateway.config.listeners import (
    LOOPBACK,
    AddressSection,
    ListenerSection,
    NamedListenerSection,
    Networks,
    Section,
    TlsSection,
    is_loopback,
)
from gateway.config.security import AuthorizationSection, SecuritySection
from gateway.pulsar.settings import PulsarSettings

DAY_MINUTES = 24 * 60

DEFAULT_LISTENER = "default"
FORWARDING_LISTENER = "forwarding"


class KafkaSection(ListenerSection):
    """The first listener, and settings that clients see."""

    listeners: tuple[NamedListenerSection, ...] = Field(default=(), strict=False)
    """Additional listeners, besides the one of this section."""
    clusters: tuple[ClusterSection, ...] = Field(default=(), strict=False)
    """Additional clusters, besides the one of `[pulsar]`. Each has its own topics, groups and transactional ids."""
    cluster_limits: ClusterLimits = ClusterLimits()
    """`max_open`, `max_share_percent` and `idle_ms`: limits for the resources of one cluster if there are several."""
    node_id: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Must be different in each gateway of a namespace. By default the lowest id that is free at start."""
    rack: str | None = Field(default=None, min_length=1)
    """Kafka's `broker.rack`: the zone or region of this gateway. A consumer with the same `client.rack` fetches from a
    gateway of its rack (KIP-392)."""
    cluster_id: str | None = Field(default=None, min_length=1)
    """By default an id that the first gateway of the namespace chooses for all gateways."""
    auto_create_topics: bool = True
    """Kafka's `auto.create.topics.enable`."""
    max_auto_created_topics: int = Field(default=100, ge=1)
    """The number of topics that one request may create. A client that needs more topics has to send another request."""
    default_partitions: int = Field(default=1, ge=1)
    """Kafka's `num.partitions`."""

    @property
    def all_listeners(self) -> list[NamedListenerSection]:
        own = {name: getattr(self, name) for name in ListenerSection.model_fields}
        return [NamedListenerSection(name=DEFAULT_LISTENER, **own), *self.listeners]

    @model_validator(mode="after")
    def _names_differ(self) -> KafkaSection:
        names = [listener.name for listener in self.all_listeners]
        if len(set(names)) < len(names):
            raise ValueError(f"listeners must have different names, and none may be called {DEFAULT_LISTENER}")
        if FORWARDING_LISTENER in names:
            raise ValueError(f"no listener may be called {FORWARDING_LISTENER}: that is for other gateways")
        return self

    @property
    def open_listener(self) -> str | None:
        """The first listener where clients reach this gateway itself, and do not need to log in."""
        open_to_all = (each for each in self.all_listeners if each.protocol == "PLAINTEXT" and each.cluster is None)
        return next((each.name for each in open_to_all if not each.single_address), None)

    @property
    def advertised(self) -> str:
        """host:port as clients get it."""
        return f"{self.advertised_host or self.host}:{self.advertised_port or self.port}"


class PulsarSection(PulsarSettings):
    """Pulsar's brokers, credentials and limits for requests to Pulsar, and the namespace that is served."""

    tenant: str = "kafka"
    """The tenant of both namespaces."""
    namespace: str = "default"
    """The namespace of the topics. The gateways of one namespace form one cluster."""
    system_namespace: str | None = None
    """A namespace of the same tenant for the state of the gateways. A role that may write there can mislead clients:
    grant it to no role. By default the name of the namespace with `-gateway` appended."""
    retention_minutes: int = Field(default=7 * DAY_MINUTES, ge=-1)
    """Retention of the namespace if the gateway creates it; -1 keeps records forever. Clients see it as the default of
    `retention.ms`."""

    @property
    def full_namespace(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def full_system_namespace(self) -> str:
        return f"{self.tenant}/{self.system_namespace or self.namespace + SYSTEM_SUFFIX}"

    @property
    def both_namespaces(self) -> frozenset[str]:
        return frozenset({self.full_namespace, self.full_system_namespace})


class GroupsSection(Section):
    """Consumer groups."""

    offsets_topic_partitions: int = Field(default=4, ge=1, le=1_000)
    """The number of partitions of `__consumer_offsets` when the gateway creates it. It is not changed later."""
    offsets_topic_segment_bytes: int = Field(default=100 * 1024 * 1024, ge=1)
    """A partition of `__consumer_offsets` is trimmed after this number of bytes. A new coordinator loads up to this
    size."""
    offsets_retention_minutes: int = Field(default=7 * DAY_MINUTES, ge=1)
    """Kafka's `offsets.retention.minutes`."""
    initial_rebalance_delay_ms: int = Field(default=3_000, ge=0)
    """Kafka's `group.initial.rebalance.delay.ms`."""
    min_session_timeout_ms: int = Field(default=6_000, ge=1)
    """Kafka's `group.min.session.timeout.ms`."""
    max_session_timeout_ms: int = Field(default=1_800_000, ge=1)
    """Kafka's `group.max.session.timeout.ms`."""
    max_size: int = Field(default=2**31 - 1, ge=1)
    """Kafka's `group.max.size`: the maximum number of members of one group."""
    max_metadata_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """The size of what all members of groups send with JoinGroup, of their ids, of what leaders assign to them, of the
    topics that they name (150 bytes each), and of those that their expressions match (60 bytes each, if they may not
    describe all of them; otherwise groups share them), for each partition of `__consumer_offsets`. Above it, a member
    gets GROUP_MAX_SIZE_REACHED."""
    consumer_heartbeat_interval_ms: int = Field(default=5_000, ge=1)
    """Kafka's `group.consumer.heartbeat.interval.ms`, for the consumer protocol (KIP-848)."""
    consumer_session_timeout_ms: int = Field(default=45_000, ge=1)
    """Kafka's `group.consumer.session.timeout.ms`."""
    consumer_max_size: int = Field(default=2**31 - 1, ge=1)
    """Kafka's `group.consumer.max.size`."""
    consumer_migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"
    """Kafka's `group.consumer.migration.policy`: `disabled`, `upgrade`, `downgrade` or `bidirectional`."""
    max_configs_bytes: int = Field(default=256 * 1024, ge=0)
    """The size of the configurations of all groups of a cluster. Above it, none can be added (POLICY_VIOLATION). They
    are properties of one Pulsar topic, for which Pulsar's metadata store has 1 MB."""
    max_lag_series: int = Field(default=10_000, ge=0)
    """The maximum number of committed offsets for which `kafka_gateway_group_lag` is exported.
    `kafka_gateway_group_lag_omitted` counts the others."""
    mirror: bool = True
    """Maintain a Pulsar subscription for each group, at the group's committed offsets."""
    mirror_replicated: bool = False
    """Make these subscriptions replicated (PIP-33), so that a group can continue in another Pulsar cluster."""

    @model_validator(mode="after")
    def _agree(self) -> GroupsSection:
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ValueError("consumer_heartbeat_interval_ms must be below consumer_session_timeout_ms")
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ValueError("min_session_timeout_ms must not exceed max_session_timeout_ms")
        return self


class TransactionsSection(Section):
    """Transactions."""

    state_topic_partitions: int = Field(default=4, ge=1, le=1_000)
    """The number of partitions of `__transaction_state` when the gateway creates it. It is not changed later."""
    state_topic_segment_bytes: int = Field(default=100 * 1024 * 1024, ge=1)
    """A partition of `__transaction_state` is trimmed after this number of bytes. A new coordinator loads up to this
    size."""
    max_timeout_ms: int = Field(default=15 * 60_000, ge=1, le=2**31 - 1)
    """Kafka's `transaction.max.timeout.ms`. Producers that request a longer timeout are refused."""
    id_expiration_ms: int = Field(default=7 * DAY_MINUTES * 60_000, ge=1)
    """Kafka's `transactional.id.expiration.ms`: an id that is not used for this time is removed."""


class ForwardingSection(AddressSection):
    """The listener for requests that other gateways forward. `[limits] max_connections` does not apply to it."""

    port: int = Field(default=9192, ge=0, le=65_535)
    """The port on which the gateway listens."""
    trusted_peers: Networks = Field(default=LOOPBACK, strict=False)
    """Networks or addresses of the other gateways. Connections from other addresses are closed."""
    tls: TlsSection | None = None
    """`certificate`, `key` and `authorities`: the gateways present their certificates to each other. Required if
    clients log in, unless `host` is loopback."""
    peer_names: tuple[str, ...] = Field(default=(), strict=False)
    """The names in the gateways' certificates, such as `CN=gateway-1,O=Acme`. Connections with others are closed."""

    @model_validator(mode="after")
    def _names_are_checked(self) -> ForwardingSection:
        if (self.tls is not None) != bool(self.peer_names):
            raise ValueError("tls and peer_names go together")
        if self.tls is not None and self.tls.authorities is None:
            raise ValueError("tls needs authorities, which sign the certificates of the other gateways")
        return self


class FleetSection(Section):
    """How the gateways of one namespace monitor each other. Use the same values in all of them.

    `lease_ms` must be at least 3 times `heartbeat_ms`, and `dead_after_ms` at least 1.1 times `lease_ms`.
    """

    forwarding: ForwardingSection | None = None
    """Required in every gateway if any gateway has a listener with `single_address`. Transactions use it, too; without
    it they need a listener without TLS and without login, and no authorizer."""

    heartbeat_ms: int = Field(default=500, ge=10)
    """The interval between two heartbeats of a gateway."""
    lease_ms: int = Field(default=2_000, ge=30)
    """A gateway that cannot renew its lease for this time stops coordinating groups and accepting batches of idempotent
    producers, until it has a lease again."""
    dead_after_ms: int = Field(default=2_500, ge=33)
    """A gateway from which the others read no heartbeat for this time is considered dead. They take over its
    partitions."""
    cut_off_ms: int = Field(default=20_000, ge=33)
    """If Pulsar has acknowledged no write of a gateway for this time, and there are other gateways, the gateway is not
    ready. Choose a longer time than Pulsar needs to move topics."""
    hand_over_ms: int = Field(default=6_000, ge=0)
    """The maximum time that a stopping gateway waits for the others to take over. Choose a longer time than
    `dead_after_ms`."""

    @property
    def times(self) -> FleetTimes:
        return FleetTimes(self.heartbeat_ms, self.lease_ms, self.dead_after_ms, self.cut_off_ms)

    @model_validator(mode="after")
    def _agree(self) -> FleetSection:
        contradiction = self.times.contradiction()
        if contradiction is not None:
            raise ValueError(contradiction)
        return self


class HttpSection(Section):
    """Metrics and health checks. Health checks need no token."""

    host: str = "127.0.0.1"
    """The address for metrics and health checks."""
    port: int = Field(default=9464, ge=0, le=65_535)
    """The port for metrics and health checks."""
    token_file: Path | None = Field(default=None, strict=False)
    """A file with the bearer token that is required for `/metrics`, and for the names of clusters in `/readyz`. It is
    read for each request. By default no token is required."""


class Config(Section):
    kafka: KafkaSection = KafkaSection()
    pulsar: PulsarSection = PulsarSection()
    groups: GroupsSection = GroupsSection()
    transactions: TransactionsSection = TransactionsSection()
    fleet: FleetSection = FleetSection()
    security: SecuritySection = SecuritySection()
    authorization: AuthorizationSection = AuthorizationSection()
    http: HttpSection = HttpSection()
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""

    @model_validator(mode="after")
    def _agree(self) -> Config:
        if self.fleet.forwarding is None and any(each.single_address for each in self.kafka.all_listeners):
            raise ValueError("a listener with single_address needs [fleet.forwarding], where other gateways connect")
        forwarding = self.fleet.forwarding
        exposed = forwarding is not None and forwarding.tls is None and not is_loopback(forwarding.host)
        if exposed and any(each.authenticates for each in self.kafka.all_listeners):
            raise ValueError("clients log in, so [fleet.forwarding] needs tls: any host could act as any client")
        if self.security.tokens is None and any("OAUTHBEARER" in each.mechanisms for each in self.kafka.all_listeners):
            raise ValueError("OAUTHBEARER needs the keys of tokens: [security.tokens]")
        return self

    @model_validator(mode="after")
    def _agree_on_clusters(self) -> Config:
        clusters = self.kafka.clusters
        if clusters and self.fleet.forwarding is None:
            raise ValueError("[[kafka.clusters]] need [fleet.forwarding], where other gateways connect")
        listeners = self.kafka.all_listeners
        if any(each.hosts for each in clusters) and not any(each.may_choose_by_host for each in listeners):
            raise ValueError("hosts of clusters need a listener with TLS, single_address, and no cluster of its own")
        check_clusters(clusters, self.pulsar.both_namespaces, [each.cluster for each in listeners])
        return self


class ConfigError(Exception):
    """The configuration cannot be used. The text has the file, the place in it and the reason, in one line."""


def load(path: Path) -> Config:
    """Read a TOML file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return Config.model_validate(tomllib.load(file))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        # The text of pydantic has several lines, and contains the values, secrets too.
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigError(f"{path}: {problems.replace('Value error, ', '')}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: this is not TOML: {error}") from error
