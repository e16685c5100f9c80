"""Logs every login and every failed login. Log lines of failures are few: unauthenticated clients can cause many."""

from __future__ import annotations

import structlog

from gateway.observability.logs import SparseLog
from gateway.observability.metrics import Metrics
from gateway.requests.context import RequestContext


class LoginAudit:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = structlog.get_logger()
        self._sparse = SparseLog(self._log)

    def named(self, address: str, listener: str, name: str) -> None:
        """The client has logged in with its certificate."""
        self._metrics.logins.labels("certificate", "done").inc()
        self._log.info(
            "client logged in", principal=name, mechanism="certificate", address=address, listener=listener
        )

    def logged_in(self, context: RequestContext, mechanism: str, name: str, *, again: bool = False) -> None:
        self._metrics.logins.labels(mechanism, "again" if again else "done").inc()
        self._log.info(
            "client logged in again" if again else "client logged in", principal=name, mechanism=mechanism,
            address=context.client.address, listener=context.listener.name,
        )  # fmt: skip

    def failed(self, context: RequestContext, mechanism: str, reason: str) -> None:
        """`mechanism` is one of the offered mechanisms, or empty."""
        self._metrics.logins.labels(mechanism, "failed").inc()
        self._sparse.warning(
            "login failed", reason=reason, mechanism=mechanism, address=context.client.address,
            listener=context.listener.name,
        )  # fmt: skip
