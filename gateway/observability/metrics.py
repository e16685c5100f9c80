"""Prometheus metrics of a gateway, in one registry, which the composition root creates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.observability.logs import dropped_lines
from protocol.kafka.errors import ErrorCode

PREFIX = "kafka_gateway_"
M = TypeVar("M", bound=MetricWrapperBase)

_STALL_BUCKETS_S = (0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10)
_LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MAX_SOFTWARE_LABELS = 200
"""Names of client software come from clients: after this number of names, others are counted as "other"."""


class Tally:
    """A number that one thread changes. prometheus_client's counter takes a lock for each change, which is slow."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount

    def dec(self, amount: int = 1) -> None:
        self.value -= amount

    def set(self, value: int) -> None:
        self.value = value


class RequestMetrics:
    """The number and the latencies of requests of one API version."""

    __slots__ = ("_buckets", "_sum_s", "api", "version")

    def __init__(self, api: str, version: int) -> None:
        self.api = api
        self.version = version
        self._buckets = [0] * (len(_LATENCY_BUCKETS_S) + 1)
        self._sum_s = 0.0

    def answered(self, seconds: float) -> None:
        self._buckets[bisect_left(_LATENCY_BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets, as Prometheus needs them, and the sum."""
        bounds = [*map(str, _LATENCY_BUCKETS_S), "+Inf"]
        return list(zip(bounds, accumulate(self._buckets), strict=True)), self._sum_s


class ClusterGauge(Collector):
    """A gauge of which each cluster has its own."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._value: Callable[[], float] = lambda: 0

    def set(self, value: float) -> None:
        self._value = lambda: value

    def set_function(self, value: Callable[[], float]) -> None:
        """`value` is called at each scrape."""
        self._value = value

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self._name, self._text, value=self._value())


class Metrics(Collector):
    """Every metric that the gateway exports; names start with ``kafka_gateway_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._errors = self._make(Counter, "errors", "Error codes sent to clients", "api", "error")
        self._by_error: dict[tuple[str, ErrorCode], Counter] = {}
        """To find a counter by its labels takes 20 µs, and a request may have a hundred thousand rows with errors."""
        self._software = self._make(Counter, "client_software", "ApiVersions requests by client", "name", "version")
        self._software_seen: set[tuple[str, str]] = set()
        self._by_api: dict[tuple[str, int], RequestMetrics] = {}
        self.connections = self._make(Gauge, "connections", "Open client connections")
        self.connections_total = self._make(Counter, "connections_accepted", "Client connections accepted")
        self.connections_closed = self._make(
            Counter, "connections_closed", "Client connections that the gateway closed", "reason"
        )
        self.logins = self._make(
            Counter, "logins", "Logins by outcome: done, again (on the same connection), failed", "mechanism", "outcome"
        )
        self.certificate_failures = self._make(
            Counter, "certificate_failures", "New certificates that could not be used", "listener"
        )
        self._tallies: list[tuple[type[Metric], str, str, Tally]] = []
        self.bytes_in = self._tally(CounterMetricFamily, "bytes_in", "Bytes of requests")
        self.bytes_out = self._tally(CounterMetricFamily, "bytes_out", "Bytes of responses")
        self.request_bytes = self._tally(GaugeMetricFamily, "request_bytes", "Bytes of unanswered requests of clients")
        self.forwarded_request_bytes = self._tally(
            GaugeMetricFamily, "forwarded_request_bytes", "Bytes of unanswered requests that other gateways forward"
        )
        self.in_flight = self._tally(GaugeMetricFamily, "requests_in_flight", "Unanswered requests")
        self.entries_written = self._tally(CounterMetricFamily, "entries_written", "Pulsar entries written")
        self.batches_written = self._tally(CounterMetricFamily, "batches_written", "Record batches written")
        self.entries_read = self._tally(CounterMetricFamily, "entries_read", "Pulsar entries read")
        self.cache_bytes = self._tally(GaugeMetricFamily, "cache_bytes", "Bytes in the tail cache")
        self.cache_hits = self._tally(CounterMetricFamily, "cache_hits", "Partition reads served from memory")
        self.cache_misses = self._tally(CounterMetricFamily, "cache_misses", "Partition reads that went to Pulsar")
        self.readers = self._tally(GaugeMetricFamily, "readers", "Readers that stream older data from Pulsar")
        self.pulsar_connections = self._make(Gauge, "pulsar_connections", "Connections to brokers by state", "state")
        self.mirror_updates = self._make(Counter, "mirror_updates", "Offsets mirrored to Pulsar subscriptions")
        self.mirror_failures = self._make(
            Counter, "mirror_failures", "Failed updates of subscriptions; they are retried", "error"
        )
        self.mirror_dropped = self._make(Counter, "mirror_dropped", "Offsets not mirrored because too many wait")
        self.log_snapshots = self._make(
            Counter, "internal_log_snapshots", "Snapshots of internal logs; Pulsar may delete the log before one"
        )
        self.transactions = self._make(
            Counter, "transactions", "Transactions completed by this coordinator: all markers are written", "result"
        )
        self.tasks = self._make(Gauge, "tasks", "Tasks of the event loop")
        self.loop_stalls = self._make(
            Histogram, "event_loop_stall_seconds", "How long the event loop was blocked, if above 100 ms",
            buckets=_STALL_BUCKETS_S,
        )  # fmt: skip
        self.unexpected_failures = self._make(
            Counter, "unexpected_failures", "Exceptions that ended a background task or a callback; see the log", "task"
        )
        self.fleet_members = self._make(Gauge, "fleet_members", "Gateways that lead partitions")
        self.fleet_epoch = self._make(Gauge, "fleet_epoch", "Leader epoch of all partitions")
        self.fleet_lease = self._make(Gauge, "fleet_lease", "1 while this gateway has a lease")
        self._collectors: list[tuple[str, Collector]] = []
        self._bind("")
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def _bind(self, cluster: str) -> None:
        self._cluster = cluster
        self.mirror_pending = self._own("mirror_pending", "Offsets that wait to be mirrored")
        self.mirror_lag_seconds = self._own("mirror_lag_seconds", "How long the oldest of them has waited")
        self.transactions_open = self._own("transactions_open", "Transactions coordinated here that are not complete")
        self.transactions_hanging = self._own(
            "transactions_hanging", "Transactions in partitions led here that no coordinator knows"
        )
        self.last_stable_offset_lag = self._own(
            "last_stable_offset_lag", "Offsets behind the first open transaction, largest of the partitions led here"
        )
        self.security_log_unread_seconds = self._own(
            "security_log_unread_seconds", "How long ACLs, users and quotas of other gateways could not be read"
        )
        self.uncleanable_partitions = self._own(
            "uncleanable_partitions", "Compacted partitions with transactions, led here, that could not be cleaned"
        )
        self.transactions_oldest_seconds = self._own(
            "transactions_oldest_seconds", "How long the oldest of these transactions has been open"
        )

    def of_cluster(self, name: str) -> Metrics:
        """The same metrics, but those of a cluster have the label `cluster` with this name; the fleet's own have no
        label."""
        other = copy(self)
        other._bind(name)
        return other

    def forget_cluster(self, name: str) -> None:
        """Remove the metrics of a cluster."""
        self._collectors[:] = [each for each in self._collectors if each[0] != name]

    def register(self, collector: Collector) -> None:
        """Metrics of `collector` belong to this cluster."""
        self._collectors.append((self._cluster, collector))

    def _own(self, name: str, text: str) -> ClusterGauge:
        gauge = ClusterGauge(f"{PREFIX}{name}", text)
        self.register(gauge)
        return gauge

    def _make(self, kind: type[M], name: str, text: str, *labels: str, **options: object) -> M:
        return kind(f"{PREFIX}{name}", text, labels, registry=self.registry, **options)  # type: ignore[arg-type]

    def _tally(self, kind: type[Metric], name: str, text: str) -> Tally:
        tally = Tally()
        self._tallies.append((kind, f"{PREFIX}{name}", text, tally))
        return tally

    def request(self, api: str, version: int) -> RequestMetrics:
        known = self._by_api.get((api, version))
        if known is None:
            known = self._by_api[api, version] = RequestMetrics(api, version)
        return known

    def collect(self) -> Iterator[Metric]:
        """The tallies, latencies and cluster metrics, for the registry (this is a Collector)."""
        for kind, name, text, tally in self._tallies:
            yield kind(name, text, value=tally.value)  # type: ignore[call-arg]
        yield CounterMetricFamily(
            f"{PREFIX}log_lines_dropped", "Lines of the log that were lost: not read in time, or not written",
            value=dropped_lines(),
        )  # fmt: skip
        latency = HistogramMetricFamily(
            f"{PREFIX}request_latency_seconds", "Time from reading the whole request to encoding its response",
            labels=("api", "version"),
        )  # fmt: skip
        for each in self._by_api.values():
            buckets, sum_s = each.histogram()
            latency.add_metric((each.api, str(each.version)), buckets, sum_s)
        yield latency
        yield from self._of_clusters()

    def _of_clusters(self) -> Iterable[Metric]:
        """Each metric once, with the samples of all clusters."""
        found: dict[str, Metric] = {}
        for cluster, collector in self._collectors:
            for metric in collector.collect():
                whole = found.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                whole.samples += [_labelled(sample, cluster) if cluster else sample for sample in metric.samples]
        return found.values()

    def error(self, api: str, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        known = self._by_error.get((api, code))
        if known is None:
            known = self._by_error[api, code] = self._errors.labels(api, code.name)
        known.inc()

    def software(self, name: str, version: str) -> None:
        if (name, version) not in self._software_seen:
            if len(self._software_seen) >= MAX_SOFTWARE_LABELS:
                name, version = "other", "other"
            self._software_seen.add((name, version))
        self._software.labels(name, version).inc()


def _labelled(sample: Sample, cluster: str) -> Sample:
    return sample._replace(labels=sample.labels | {"cluster": cluster})
