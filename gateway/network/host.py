"""What the pipelines of all connections share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from gateway.config.limits import Limits
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
    """The budget of all clusters."""
    peer_requests: RequestBudget
    """The budget of the requests that other gateways forward."""
    gateway_requests: RequestBudget
    """The budget of other gateways' own requests. Forwarded requests may wait for the answers to such requests."""
    turns: Turns
    threads: ThreadPoolExecutor
    """Threads for large requests and answers. Host names are resolved in other threads, and never wait for these."""

    def requests_of(self, served: ServedCluster) -> RequestBudget:
        """Return the budget of one of several clusters."""
