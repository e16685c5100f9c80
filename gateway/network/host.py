"""What the pipelines of all connections share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from gateway.config import Limits
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.network.request_budget import RequestBudget
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics


class Host(Protocol):
    """The server, as a pipeline sees it."""

    dispatcher: Dispatcher
    limits: Limits
    metrics: Metrics
    requests: RequestBudget
    """Of all clusters."""
    turns: Turns
    threads: ThreadPoolExecutor
    """For large requests and answers. Names of hosts are looked up in others, and wait for none of these."""

    def requests_of(self, served: ServedCluster) -> RequestBudget:
        """The share of one of several clusters."""
