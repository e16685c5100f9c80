"""The resources that the parts of all logs of a gateway use."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.opening_turns import OpeningTurns
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

SCANNED_AHEAD_BYTES = 1024 * 1024
"""The approximate size of the entries that wait in memory for a scan that has its turn."""


class Resources(NamedTuple):
    """Clients of Pulsar, limits, metrics, decoding threads, and turns."""

    client: PulsarClient
    admin: AdminClient
    limits: Limits
    metrics: Metrics
    decoding: DecodingThreads
    writing_turns: OpeningTurns
    """For what a log's first write needs: to open a producer, to take over a name, to read the log's producers."""
    scan_turns: OpeningTurns
    """For scans that clients cause in any number of logs, each of which reads ahead: of transactions, and by time."""
