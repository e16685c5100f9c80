"""Limits of queues, buffers, caches and timeouts, and of all memory that clients can make the gateway hold."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from gateway.config.listeners import Section

MIB = 1024 * 1024
DECODING_THREADS = 2
LEAST_SHARE_BYTES = 2 * MIB
PARTS = {
    "fetch_budget_bytes": "unread_budget_bytes",
    "reader_budget_bytes": "readers_budget_bytes",
}
"""Budgets that are parts of others."""
NEVER_LARGER = frozenset({"max_request_bytes", "max_decompressed_bytes"})
"""What one request may use does not grow with the memory."""


def memory_budgets(decoding_threads: int) -> dict[str, float]:
    """The budgets of all memory that clients can use, and how often each can be in use."""
    return {
        # Decoded requests need one and a half times the budget; fetches that wait, forwarded requests, and those of
        # gateways, have one each.
        "requests_budget_bytes": 5.5,
        "max_request_bytes": 1,  # one request may be larger than what is left of the budget
        "unread_budget_bytes": 1,
        "cache_budget_bytes": 1,
        "readers_budget_bytes": 1,
        "max_decompressed_bytes": decoding_threads,
    }


class Limits(Section):
    """Limits of queues, buffers, caches and timeouts."""

    client_memory_bytes: int | None = Field(default=None, ge=128 * MIB)
    """One limit for all that clients can make the gateway hold, besides what each open connection, partition and group
    takes. The memory budgets below that are not set become shares of it. Those that are set must fit into it. By
    default, the sum of the budgets."""
    max_connections: int = Field(default=20_000, ge=1)
    """The maximum number of client connections. Connections of other gateways do not count."""
    max_unauthenticated_per_address: int = Field(default=256, ge=1)
    """The maximum number of connections from one address, or one /64 network of IPv6, that have not logged in, or not
    finished the TLS handshake. From all addresses together, `max_connections` is the limit."""
    login_timeout_ms: int = Field(default=10_000, ge=100)
    """The time limit of the TLS handshake, and then of the SASL login."""
    connection_idle_ms: int = Field(default=600_000, ge=1_000)
    """Kafka's `connections.max.idle.ms`."""
    stop_drain_ms: int = Field(default=2_000, ge=0)
    """The maximum time that a stopping gateway waits until the requests that it has received are answered."""
    max_request_bytes: int = Field(default=100 * MIB, ge=1024)
    """Kafka's `socket.request.max.bytes`."""
    max_control_request_bytes: int = Field(default=4 * MIB, ge=1024)
    """The same for requests other than Produce. Decoded requests need forty times their size."""
    requests_budget_bytes: int = Field(default=64 * MIB, ge=MIB)
    """The total size of requests that are received, queued or handled, over all connections. Above it, requests are
    read from one connection after the other. Decoded requests may need one and a half times this size, of which one
    client may use two thirds. Fetches that wait for records may need this size: above it, those that have waited
    longest get what there is. Clients that have not logged in may use an eighth of the budget; above that, those that
    hold request bytes for the longest time are disconnected. Requests that other gateways forward have a budget of the
    same size, and so have requests of the gateways themselves."""
    max_in_flight_requests: int = Field(default=64, ge=1)
    """The maximum number of unanswered requests of one connection. The gateway does not read more until one is
    answered."""
    max_message_bytes: int = Field(default=1024 * 1024 + 12, ge=1024)
    """The default of a topic's `max.message.bytes`."""
    decoding_threads: int = Field(default=DECODING_THREADS, ge=1)
    """The number of threads that decode large record sets."""
    max_decompressed_bytes: int = Field(default=64 * MIB, ge=MIB)
    """The maximum size of a compressed record set after decompression, if the gateway has to read its records."""
    append_max_entry_bytes: int = Field(default=1 * MIB, ge=1024)
    """Batches that share a Pulsar entry have less than this size together. A larger batch gets its own entry."""
    append_max_in_flight_entries: int = Field(default=64, ge=1)
    """The maximum number of entries of one partition that Pulsar has not acknowledged yet."""
    append_max_in_flight_bytes: int = Field(default=16 * MIB, ge=MIB)
    """The maximum number of bytes of one partition that Pulsar has not acknowledged yet."""
    append_max_queued_bytes: int = Field(default=64 * MIB, ge=MIB)
    """The maximum number of bytes of one partition that wait to be sent. Above it Produce gets a retriable error."""
    cache_budget_bytes: int = Field(default=24 * MIB, ge=MIB)
    """The cache of the newest records, for all partitions together."""
    reader_budget_bytes: int = Field(default=8 * MIB, ge=MIB)
    """The read-ahead buffer of one consumer that reads older records."""
    readers_budget_bytes: int = Field(default=12 * MIB, ge=MIB)
    """The read-ahead buffers of all these consumers. They share it evenly, and each gets at least one entry."""
    max_readers: int = Field(default=256, ge=1)
    """The number of log positions that are read at the same time. If there are more, they take turns."""
    max_log_openings: int = Field(default=32, ge=1)
    """The number of partitions that are opened at the same time, and of those that get a producer at the same time.
    Partitions with a waiting write come first."""
    reader_idle_ms: int = Field(default=30_000, ge=100)
    """A reader that is not used for this time is closed."""
    fetch_budget_bytes: int = Field(default=20 * MIB, ge=MIB)
    """Fetched bytes that are being sent to all clients. Above it a fetch returns one batch at a time."""
    unread_budget_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Responses that clients have not read yet. Above it the connections whose responses have waited longest are
    closed."""
    max_fetch_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Kafka's `fetch.max.bytes`: the maximum size of a response to Fetch."""
    max_fetch_sessions: int = Field(default=1_000, ge=0)
    """Kafka's `max.incremental.fetch.session.cache.slots`. All sessions together have at most 250 partitions for each
    slot."""
    max_security_bytes: int = Field(default=32 * MIB, ge=1024)
    """The memory for the ACLs, SCRAM users and quotas of a cluster: 32 MiB are some 35,000 ACLs. Above it, none can be
    added (POLICY_VIOLATION)."""
    producer_state_scan_bytes: int = Field(default=32 * MIB, ge=1024)
    """The number of bytes at the end of a log that are read to restore the state of idempotent producers."""
    max_producers_per_partition: int = Field(default=10_000, ge=1)
    """The maximum number of idempotent producers whose state is kept for one partition."""
    max_producers: int = Field(default=50_000, ge=1)
    """The maximum number of idempotent producers whose state is kept for all partitions. Each needs about 1 KB for each
    partition."""
    producer_id_expiration_ms: int = Field(default=24 * 60 * 60_000, ge=1_000)
    """Kafka's `producer.id.expiration.ms`."""
    timestamp_scan_bytes: int = Field(default=64 * MIB, ge=MIB)
    """Logs up to this size are searched record by record for a timestamp. In larger logs the search begins at the
    publish time."""
    refresh_timeout_ms: int = Field(default=10_000, ge=100)
    """The time limit for reading to the end of a log; after it the request fails."""
    log_idle_ms: int = Field(default=600_000, ge=1_000)
    """A partition that is not used for this time is closed."""
    metadata_max_age_ms: int = Field(default=5_000, ge=100)
    """The time for which the gateway uses the metadata of a topic before it reads it from Pulsar again."""
    metadata_timeout_ms: int = Field(default=10_000, ge=100)
    """The maximum time that a request waits for metadata from Pulsar. After it, the request uses the last known
    metadata."""

    @property
    def budgets_bytes(self) -> int:
        """What clients can make the gateway hold by the memory budgets, at most."""
        return int(sum(getattr(self, name) * times for name, times in memory_budgets(self.decoding_threads).items()))

    @model_validator(mode="before")
    @classmethod
    def _divide_memory(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("client_memory_bytes") is None:
            return given
        try:
            return cls._shares(given) | given
        except TypeError:
            return given  # the checks of the fields say what is wrong

    @classmethod
    def _shares(cls, given: dict[str, Any]) -> dict[str, int]:
        """The budgets that are not set: what the others leave, divided as the defaults are."""
        default = {name: field.default for name, field in cls.model_fields.items()}
        budgets = memory_budgets(given.get("decoding_threads", DECODING_THREADS))
        left = given["client_memory_bytes"] - sum(given[name] * budgets[name] for name in budgets if name in given)
        unset = [name for name in budgets if name not in given]
        share = max(0, left) / max(1, sum(default[name] * budgets[name] for name in unset))
        shares = {
            name: max(LEAST_SHARE_BYTES, int(default[name] * (min(1, share) if name in NEVER_LARGER else share)))
            for name in unset
        }
        for part, whole in PARTS.items():
            shares[part] = max(MIB, (shares | given)[whole] * default[part] // default[whole])
        return shares

    @model_validator(mode="after")
    def _fit_into_memory(self) -> Limits:
        if self.client_memory_bytes is not None and self.budgets_bytes > self.client_memory_bytes:
            names = ", ".join(memory_budgets(self.decoding_threads))
            raise ValueError(
                f"client_memory_bytes must be at least {self.budgets_bytes}, which the budgets need together: {names}"
            )
        return self

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
