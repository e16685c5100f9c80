"""What the clients of each cluster use of this gateway, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.observability.metrics import PREFIX
from gateway.requests.cluster import Usage


class UsageOfClusters(Collector):
    def __init__(self, usages: Callable[[], Mapping[str, Usage]]) -> None:
        """`usages` returns the usage by `tenant/namespace`."""
        self._usages = usages

    def collect(self) -> Iterator[Metric]:
        label = ("cluster",)
        connections = GaugeMetricFamily(f"{PREFIX}cluster_connections", "Open connections of its clients", labels=label)
        bytes_in = CounterMetricFamily(f"{PREFIX}cluster_bytes_in", "Bytes of requests to the cluster", labels=label)
        bytes_out = CounterMetricFamily(f"{PREFIX}cluster_bytes_out", "Bytes of its responses", labels=label)
        for cluster, usage in self._usages().items():
            connections.add_metric((cluster,), usage.connections)
            bytes_in.add_metric((cluster,), usage.bytes_in)
            bytes_out.add_metric((cluster,), usage.bytes_out)
        yield from (connections, bytes_in, bytes_out)
