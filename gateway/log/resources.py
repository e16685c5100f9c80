"""The resources that the parts of all logs of a gateway use."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient


class Resources(NamedTuple):
    """Clients of Pulsar, limits, metrics, and decoding threads."""

    client: PulsarClient
    admin: AdminClient
    limits: Limits
    metrics: Metrics
    decoding: DecodingThreads
