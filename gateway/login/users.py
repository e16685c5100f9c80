"""Finds the users of a connection: those of the configuration, of its cluster, and of the fleet's own cluster."""

from __future__ import annotations

from gateway.dispatch import Entrance
from gateway.login.exchanges import KnownUser, Mechanisms
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener
from protocol.sasl.failure import LoginFailed
from protocol.sasl.scram import ScramMechanism


class UsersHere:
    """If users of several places have the same name, the configuration comes first, then the cluster, then the fleet's
    own cluster."""

    def __init__(self, mechanisms: Mechanisms, entrance: Entrance | None, listener: Listener) -> None:
        self._mechanisms = mechanisms
        self._entrance = entrance
        self._listener = listener

    async def find(self, user: str, mechanism: ScramMechanism) -> KnownUser | None:
        """Raises LoginFailed."""
        configured = self._mechanisms.configured.find(user, mechanism)
        if configured is not None:
            return KnownUser(configured)
        of_cluster = await self._find_in_cluster(user, mechanism)
        if of_cluster is not None:
            return of_cluster
        own = None if self._mechanisms.own is None else self._mechanisms.own.find(user, mechanism)
        return None if own is None else KnownUser(own)

    async def _find_in_cluster(self, user: str, mechanism: ScramMechanism) -> KnownUser | None:
        """Search in the cluster of the listener, or in the only one whose `users` have the name."""
        if self._entrance is None:
            return None
        try:
            home = await self._entrance.home(self._listener, user)
        except ClusterRefused as refused:
            raise LoginFailed(str(refused)) from None
        if home is None:
            return None
        found = home.cluster.security.find(user, mechanism)
        return None if found is None else KnownUser(found, home.cluster.config.pulsar.full_namespace)
