"""What a gateway can be told (TOML), with every limit named and the limits checked against each other."""

from __future__ import annotations

import tomllib
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from coordinator.fleet.times import FleetTimes
from gateway.pulsar.settings import PulsarSettings

Networks = tuple[Annotated[IPv4Network, Strict(False)] | Annotated[IPv6Network, Strict(False)], ...]
"""TOML has them as texts."""

MIB = 1024 * 1024
DAY_MINUTES = 24 * 60


LOOPBACK: Networks = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class AddressSection(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=9092, ge=0, le=65_535)
    advertised_host: str | None = None
    """Where those that came by this address are told to connect; the listening host by default."""
    advertised_port: int | None = Field(default=None, ge=1, le=65_535)


class ListenerSection(AddressSection):
    """One address where clients connect."""

    proxy_protocol: bool = False
    """Each connection begins with a PROXY header, v1 or v2, by which a load balancer names the client."""
    trusted_proxies: Networks = Field(default=LOOPBACK, strict=False)
    """From where such connections are taken: networks or addresses of load balancers. Others are closed."""
    single_address: bool = False
    """The advertised address is that of all gateways: clients see one broker, and requests for what another gateway
    leads are forwarded to it."""


class NamedListenerSection(ListenerSection):
    name: str = Field(min_length=1)
    """The same in all gateways: who came by it is sent to the listener of this name of another gateway."""


DEFAULT_LISTENER = "default"
FORWARDING_LISTENER = "forwarding"


class KafkaSection(ListenerSection):
    """The Kafka side: where clients connect, and what they are told."""

    listeners: tuple[NamedListenerSection, ...] = Field(default=(), strict=False)
    """More of them, besides the one of this section, as `[[kafka.listeners]]`: the seven keys above, and `name`."""
    node_id: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Of each gateway in a namespace its own; by default the lowest that is free when it starts."""
    rack: str | None = Field(default=None, min_length=1)
    """Kafka's `broker.rack`: the region or zone in which this gateway is. A consumer that has the same as
    `client.rack` reads from a gateway of its rack, whoever leads (KIP-392)."""
    cluster_id: str | None = Field(default=None, min_length=1)
    """By default one that the first gateway of the namespace makes up, for all that come after it."""
    auto_create_topics: bool = True
    max_auto_created_topics: int = Field(default=100, ge=1)
    """For one request; clients that need more ask again."""
    default_partitions: int = Field(default=1, ge=1)

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
    def advertised(self) -> str:
        """host:port as clients are told."""
        return f"{self.advertised_host or self.host}:{self.advertised_port or self.port}"


class PulsarSection(PulsarSettings):
    """The Pulsar side: brokers and credentials (PulsarSettings), and the namespace that is served."""

    tenant: str = "kafka"
    namespace: str = "default"
    system_namespace: str | None = None
    """Of the same tenant, for the state of the gateways: what may write there can mislead clients, so grant it to no
    role. By default the namespace's name with `-gateway` behind it."""
    retention_minutes: int = Field(default=7 * DAY_MINUTES, ge=-1)
    """Set when the gateway creates the namespace; -1 keeps everything. Clients see it as the default of
    `retention.ms`."""

    @property
    def full_namespace(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def full_system_namespace(self) -> str:
        return f"{self.tenant}/{self.system_namespace or f'{self.namespace}-gateway'}"


class GroupsSection(Section):
    """Consumer groups. Names and defaults are those of Kafka's brokers."""

    offsets_topic_partitions: int = Field(default=4, ge=1, le=1_000)
    """Of `__consumer_offsets` when the gateway creates it; afterwards Pulsar knows the count."""
    offsets_topic_segment_bytes: int = Field(default=100 * 1024 * 1024, ge=1)
    """So much is written to a partition before what that overwrites may go. A new coordinator has it to load."""
    offsets_retention_minutes: int = Field(default=7 * DAY_MINUTES, ge=1)
    initial_rebalance_delay_ms: int = Field(default=3_000, ge=0)
    min_session_timeout_ms: int = Field(default=6_000, ge=1)
    max_session_timeout_ms: int = Field(default=1_800_000, ge=1)
    max_size: int = Field(default=2**31 - 1, ge=1)
    consumer_heartbeat_interval_ms: int = Field(default=5_000, ge=1)
    """Of members of the consumer protocol (KIP-848), whom the coordinator tells both; Kafka's `group.consumer.*`."""
    consumer_session_timeout_ms: int = Field(default=45_000, ge=1)
    consumer_max_size: int = Field(default=2**31 - 1, ge=1)
    consumer_migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"
    """Which way a group may change its protocol while it has members: to the consumer protocol, back, or both."""
    max_lag_series: int = Field(default=10_000, ge=0)
    """Committed offsets that have a gauge of their lag; another gauge tells how many there are besides."""
    mirror: bool = True
    """Show each group to Pulsar as a subscription that stands where the group does."""
    mirror_replicated: bool = False
    """Make these subscriptions replicated ones: a geo-replicated namespace carries them to its other clusters."""

    @model_validator(mode="after")
    def _agree(self) -> GroupsSection:
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ValueError("consumer_heartbeat_interval_ms must be below consumer_session_timeout_ms")
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ValueError("min_session_timeout_ms must not exceed max_session_timeout_ms")
        return self


class ForwardingSection(AddressSection):
    """Where the other gateways, and nobody else, pass on what their clients want of this one."""

    port: int = Field(default=9192, ge=0, le=65_535)
    trusted_peers: Networks = Field(default=LOOPBACK, strict=False)
    """Networks or addresses of the other gateways. Connections from elsewhere are closed."""


class FleetSection(Section):
    """How the gateways of one namespace know that the others live; best the same for all of them."""

    forwarding: ForwardingSection | None = None
    """Needed in every gateway as soon as one has a listener with a single address."""

    heartbeat_ms: int = Field(default=500, ge=10)
    lease_ms: int = Field(default=2_000, ge=30)
    """A gateway that could not renew its lease for so long stops coordinating groups, and writing for idempotent
    producers, until it can."""
    dead_after_ms: int = Field(default=2_500, ge=33)
    """A gateway of which the others read no heartbeat for so long is presumed dead: they take over what it led."""
    cut_off_ms: int = Field(default=20_000, ge=33)
    """A gateway whose writes Pulsar has not acknowledged for so long, and that knows of others, is not ready: it may be
    cut off with its region. Longer than Pulsar needs to move topics, and than writes wait for Pulsar (20 s)."""
    hand_over_ms: int = Field(default=6_000, ge=0)
    """A gateway that stops waits so long for the others to take over: longer than ``dead_after_ms``, should one of them
    be dead."""

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
    """Metrics and health."""

    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65_535)


class Limits(Section):
    """Bounds of every queue, buffer, cache and wait."""

    max_connections: int = Field(default=20_000, ge=1)
    connection_idle_ms: int = Field(default=600_000, ge=1_000)
    stop_drain_ms: int = Field(default=2_000, ge=0)
    """Of a gateway that stops: so long it waits for the answers to requests that have come."""
    max_request_bytes: int = Field(default=100 * MIB, ge=1024)
    """Kafka's socket.request.max.bytes."""
    max_control_request_bytes: int = Field(default=4 * MIB, ge=1024)
    """Of requests other than Produce: decoded, they take forty times their size."""
    requests_budget_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Requests that are being received, wait, or are handled; above it the gateway reads one after the other. Decoded
    ones are bounded by as much again."""
    max_in_flight_requests: int = Field(default=64, ge=1)
    """Requests of one connection that wait for their answers; more are not read."""
    max_message_bytes: int = Field(default=1024 * 1024 + 12, ge=1024)
    """Default of a topic's max.message.bytes, as Kafka's."""
    decoding_threads: int = Field(default=2, ge=1)
    """They look at records where that takes long; each holds what one record set unfolds to."""
    max_decompressed_bytes: int = Field(default=64 * MIB, ge=MIB)
    """What one compressed record set may unfold to, where the gateway has to look inside."""
    append_max_entry_bytes: int = Field(default=1 * MIB, ge=1024)
    """Batches that share a Pulsar entry stay below this; a larger batch has an entry of its own."""
    append_max_in_flight_entries: int = Field(default=64, ge=1)
    append_max_in_flight_bytes: int = Field(default=16 * MIB, ge=MIB)
    """Of one partition."""
    append_max_queued_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Of one partition, waiting for a place in flight; above that produce requests fail as throttled."""
    cache_budget_bytes: int = Field(default=24 * MIB, ge=MIB)
    """Tails of all partitions together."""
    reader_budget_bytes: int = Field(default=8 * MIB, ge=MIB)
    """Read ahead for one consumer that catches up, at the most."""
    readers_budget_bytes: int = Field(default=12 * MIB, ge=MIB)
    """Read ahead for all of them: they share it evenly, and each gets at least one entry."""
    max_readers: int = Field(default=256, ge=1)
    """Open at a time; of more positions that lag, each gets its turn."""
    max_log_openings: int = Field(default=32, ge=1)
    """Partitions that are opened at a time, those first that a write waits for."""
    reader_idle_ms: int = Field(default=30_000, ge=100)
    fetch_budget_bytes: int = Field(default=20 * MIB, ge=MIB)
    """Fetched bytes on their way to all clients; above it a fetch returns one batch at a time."""
    unread_budget_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Answers that clients do not take; above it the connections that have stood longest are closed."""
    max_fetch_bytes: int = Field(default=64 * MIB, ge=MIB)
    max_fetch_sessions: int = Field(default=1_000, ge=0)
    producer_state_scan_bytes: int = Field(default=32 * MIB, ge=1024)
    """How much of a log's end is read to know its idempotent producers again."""
    max_producers_per_partition: int = Field(default=10_000, ge=1)
    max_producers: int = Field(default=50_000, ge=1)
    """Idempotent producers that are known, of all partitions together: each takes about 1 KB for each partition."""
    producer_id_expiration_ms: int = Field(default=24 * 60 * 60_000, ge=1_000)
    """Kafka's producer.id.expiration.ms: one that has written nothing for so long is forgotten."""
    timestamp_scan_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Logs up to this size are searched record by record for a timestamp; larger ones start at the publish time."""
    refresh_timeout_ms: int = Field(default=10_000, ge=100)
    """How long reading up to the end of a log may take, before a request that needs it fails."""
    log_idle_ms: int = Field(default=600_000, ge=1_000)
    metadata_max_age_ms: int = Field(default=5_000, ge=100)
    metadata_timeout_ms: int = Field(default=10_000, ge=100)
    """How long a request waits for what Pulsar knows of a topic, or of all; then what was known before counts."""

    @model_validator(mode="after")
    def _agree(self) -> Limits:
        if self.max_message_bytes > self.max_request_bytes:
            raise ValueError("max_message_bytes must fit into max_request_bytes")
        if self.fetch_budget_bytes > self.unread_budget_bytes:
            raise ValueError("fetch_budget_bytes must not exceed unread_budget_bytes")
        if self.append_max_entry_bytes > self.append_max_in_flight_bytes:
            raise ValueError("append_max_entry_bytes must fit into append_max_in_flight_bytes")
        if self.max_producers_per_partition > self.max_producers:
            raise ValueError("max_producers_per_partition must not exceed max_producers")
        if self.append_max_in_flight_bytes > self.append_max_queued_bytes:
            raise ValueError("append_max_in_flight_bytes must not exceed append_max_queued_bytes")
        return self


class Config(Section):
    kafka: KafkaSection = KafkaSection()
    pulsar: PulsarSection = PulsarSection()
    groups: GroupsSection = GroupsSection()
    fleet: FleetSection = FleetSection()
    http: HttpSection = HttpSection()
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _agree(self) -> Config:
        if self.fleet.forwarding is None and any(each.single_address for each in self.kafka.all_listeners):
            raise ValueError("a listener with single_address needs [fleet.forwarding], where other gateways connect")
        return self


class ConfigError(Exception):
    """A configuration cannot be used; the text says which file, where in it and why, in one line."""


def load(path: Path) -> Config:
    """Read a TOML file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return Config.model_validate(tomllib.load(file))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        # The library's own text has several lines, and repeats values, secrets among them.
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigError(f"{path}: {problems.replace('Value error, ', '')}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: this is not TOML: {error}") from error
