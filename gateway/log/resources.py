"""The resources that the parts of all logs of a gateway use."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.opening_turns import OpeningTurns
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient


class Resources(NamedTuple):
    """Clients of Pulsar, limits, metrics, decoding threads, and turns."""

    client: PulsarClient
    admin: AdminClient
    limits: Limits
    metrics: Metrics
    decoding: DecodingThreads
    writing_turns: OpeningTurns
    """For what a log's first write needs: to open a producer, to take over a name, to read the log's producers."""
    search_turns: OpeningTurns
    """For searches by time, each of which reads ahead."""
