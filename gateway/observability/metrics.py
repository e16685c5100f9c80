"""Prometheus metrics of a gateway, in one registry that the composition root makes."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

from protocol.kafka.errors import ErrorCode

M = TypeVar("M", bound=MetricWrapperBase)

_LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MAX_SOFTWARE_LABELS = 200
"""Client software names come from clients: past this many they are counted as "other"."""


class RequestMetrics:
    """Counters of one API version, looked up once."""

    __slots__ = ("latency", "requests")

    def __init__(self, requests: Counter, latency: Histogram) -> None:
        self.requests = requests
        self.latency = latency


class Metrics:
    """Every metric that the gateway exports; names start with ``kafka_gateway_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._make(Counter, "requests", "Requests answered", "api", "version")
        self._errors = self._make(Counter, "errors", "Error codes sent to clients", "api", "error")
        self._latency = self._make(
            Histogram,
            "request_latency_seconds",
            "From the whole request read to its answer written",
            "api",
            buckets=_LATENCY_BUCKETS_S,
        )
        self._software = self._make(Counter, "client_software", "ApiVersions requests by client", "name", "version")
        self._software_seen: set[tuple[str, str]] = set()
        self._by_api: dict[tuple[str, int], RequestMetrics] = {}
        self.connections = self._make(Gauge, "connections", "Open client connections")
        self.connections_total = self._make(Counter, "connections_accepted", "Client connections accepted")
        self.connections_closed = self._make(
            Counter, "connections_closed", "Client connections that the gateway closed", "reason"
        )
        self.bytes_in = self._make(Counter, "bytes_in", "Bytes of requests")
        self.bytes_out = self._make(Counter, "bytes_out", "Bytes of responses")
        self.in_flight = self._make(Gauge, "requests_in_flight", "Requests that wait for their answers")
        self.entries_written = self._make(Counter, "entries_written", "Pulsar entries written")
        self.batches_written = self._make(Counter, "batches_written", "Record batches written")
        self.entries_read = self._make(Counter, "entries_read", "Pulsar entries read")
        self.cache_bytes = self._make(Gauge, "cache_bytes", "Bytes in the tail cache")
        self.cache_hits = self._make(Counter, "cache_hits", "Partition reads served from memory")
        self.cache_misses = self._make(Counter, "cache_misses", "Partition reads that went to Pulsar")
        self.readers = self._make(Gauge, "readers", "Readers that stream older data from Pulsar")
        self.pulsar_connections = self._make(Gauge, "pulsar_connections", "Connections to brokers by state", "state")
        ProcessCollector(registry=self.registry)

    def _make(self, kind: type[M], name: str, text: str, *labels: str, **options: object) -> M:
        return kind(f"kafka_gateway_{name}", text, labels, registry=self.registry, **options)  # type: ignore[arg-type]

    def request(self, api: str, version: int) -> RequestMetrics:
        known = self._by_api.get((api, version))
        if known is None:
            known = RequestMetrics(self._requests.labels(api, version), self._latency.labels(api))
            self._by_api[api, version] = known
        return known

    def error(self, api: str, code: ErrorCode) -> None:
        self._errors.labels(api, code.name).inc()

    def software(self, name: str, version: str) -> None:
        if (name, version) not in self._software_seen:
            if len(self._software_seen) >= MAX_SOFTWARE_LABELS:
                name, version = "other", "other"
            self._software_seen.add((name, version))
        self._software.labels(name, version).inc()
