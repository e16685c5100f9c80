"""Chooses the cluster of a connection, and counts the connection there."""

from __future__ import annotations

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.requests.cluster import ClusterRefused, Usage
from gateway.requests.context import RequestContext


class Admission:
    """The admission of one connection. It belongs to the fleet's own cluster until it is admitted to another one."""

    def __init__(self, dispatcher: Dispatcher, context: RequestContext) -> None:
        self.served = dispatcher.own
        self.is_awaited = dispatcher.entrance is not None
        """The connection must be admitted before its first request runs. Login requests are the exception."""
        self._is_peer = context.listener.name == FORWARDING_LISTENER
        """The clients of another gateway, and what they use, are counted on that gateway."""
        self.usage = Usage() if self._is_peer else self.served.cluster.usage
        """The connection's bytes are added here."""
        self._dispatcher = dispatcher
        self._asked: str | None = None
        self._is_counted = False

    def ask_for(self, cluster: str) -> None:
        """The connection's requests are for this cluster."""
        self._asked = cluster
        self.is_awaited = True

    async def choose(self, context: RequestContext) -> ServedCluster:
        """Return the cluster that the connection is to be admitted to. Raises ClusterRefused."""
        entrance = self._dispatcher.entrance
        if entrance is None:
            raise ClusterRefused("cluster is not served")
        return await entrance.enter(context.listener, context.principal, self._asked)

    def admit(self, served: ServedCluster) -> None:
        """Raises ClusterRefused if the cluster has too many connections, or was closed since it was chosen."""
        if served.cluster.usage.has_ended:
            raise ClusterRefused("cluster closed")
        self.is_awaited = False
        self.served = served
        if self._is_peer:
            return
        self.usage = served.cluster.usage
        self.usage.connections += 1
        self._is_counted = True
        if self.usage.connections > served.cluster.config.limits.max_connections:
            raise ClusterRefused("too many connections of the cluster")

    def leave(self) -> None:
        """The client has disconnected."""
        if self._is_counted:
            self.usage.connections -= 1
