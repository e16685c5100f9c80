"""Grafana's dashboards, as panels of Prometheus expressions: name, unit, expression, legend."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import yaml

DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS, PANEL_WIDTH, PANEL_HEIGHT = 24, 12, 8


class Panel(NamedTuple):
    title: str
    unit: str
    expression: str
    legend: str


DASHBOARDS: dict[str, tuple[Panel, ...]] = {
    "bookies": (
        Panel("Written", "Bps", "rate(bookie_WRITE_BYTES[30s])", "{{node}}"),
        Panel("Read", "Bps", "rate(bookie_READ_BYTES[30s])", "{{node}}"),
        Panel("Entries added", "ops", 'rate(bookie_BOOKIE_ADD_ENTRY_count{success="true"}[30s])', "{{node}}"),
        Panel("Adding an entry, p99", "ms", 'bookie_BOOKIE_ADD_ENTRY{success="true",quantile="0.99"}', "{{node}}"),
        Panel("Written in a region", "Bps", "sum by (region) (rate(bookie_WRITE_BYTES[30s]))", "{{region}}"),
        Panel("Read in a region", "Bps", "sum by (region) (rate(bookie_READ_BYTES[30s]))", "{{region}}"),
    ),
    "gateways": (
        Panel("Bytes in", "Bps", "rate(kafka_gateway_bytes_in_total[30s])", "{{node}}"),
        Panel("Bytes out", "Bps", "rate(kafka_gateway_bytes_out_total[30s])", "{{node}}"),
        Panel("Connections", "none", "kafka_gateway_connections", "{{node}}"),
        Panel("Requests", "reqps", "sum by (api) (rate(kafka_gateway_request_latency_seconds_count[30s]))", "{{api}}"),
        Panel(
            "Produce, p99", "s",
            "histogram_quantile(0.99, sum by (node, le) "
            '(rate(kafka_gateway_request_latency_seconds_bucket{api="Produce"}[30s])))',
            "{{node}}",
        ),
        Panel("Errors", "ops", "sum by (api, error) (rate(kafka_gateway_errors_total[30s]))", "{{api}} {{error}}"),
        Panel("Members of the fleet", "none", "kafka_gateway_fleet_members", "{{node}}"),
        Panel("Mirror behind its groups", "s", "kafka_gateway_mirror_lag_seconds", "{{node}}"),
    ),
    "replication": (
        Panel("Backlog to the other clusters", "none", "sum by (cluster) (pulsar_replication_backlog)", "{{cluster}}"),
        Panel("Delay", "s", "max by (cluster) (pulsar_replication_delay_in_seconds)", "{{cluster}}"),
        Panel("Sent", "ops", "sum by (cluster) (pulsar_replication_rate_out)", "{{cluster}}"),
    ),
}  # fmt: skip

PROVIDERS = {
    "apiVersion": 1,
    "providers": [{"name": "kafka-gateway", "options": {"path": "/var/lib/grafana/dashboards"}}],
}
DATASOURCES = {
    "apiVersion": 1,
    "datasources": [
        {
            "name": "Prometheus",
            "type": "prometheus",
            "uid": "prometheus",
            "url": "http://prometheus:9090",
            "isDefault": True,
        }
    ],
}


def files() -> dict[str, str]:
    """The dashboards as JSON files, by path under Grafana's folder."""
    made = {f"dashboards/{name}.json": _dashboard(name, panels) for name, panels in DASHBOARDS.items()}
    made["provisioning/dashboards/kafka-gateway.yaml"] = yaml.safe_dump(PROVIDERS, sort_keys=False)
    made["provisioning/datasources/prometheus.yaml"] = yaml.safe_dump(DATASOURCES, sort_keys=False)
    return made


def _dashboard(name: str, panels: tuple[Panel, ...]) -> str:
    dashboard = {
        "uid": name,
        "title": name.capitalize(),
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number * PANEL_WIDTH, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": {"x": column, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.expression, "legendFormat": panel.legend}],
    }
