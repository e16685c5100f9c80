"""Finds the users of a connection: those of the configuration, of its cluster, and of the fleet's own cluster."""

from __future__ import annotations

from gateway.dispatch import Entrance, ServedCluster
from gateway.login.credentials import ScramCredentials
from gateway.login.exchanges import KnownUser, Mechanisms
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener
from protocol.sasl.failure import LoginFailed
from protocol.sasl.scram import ScramMechanism


class UsersHere:
    """If users of several places have the same name, the configuration comes first, then the cluster, then the fleet's
    own cluster. The first place that has the name decides: no password of another place counts, of any mechanism."""

    def __init__(self, mechanisms: Mechanisms, entrance: Entrance | None, listener: Listener) -> None:
        self._mechanisms = mechanisms
        self._entrance = entrance
        self._listener = listener

    async def find(self, user: str, mechanism: ScramMechanism) -> KnownUser | None:
        """Raises LoginFailed."""
        if _has(self._mechanisms.configured, user):
            return _known(self._mechanisms.configured, user, mechanism)
        home = await self._home(user)
        if home is not None and _has(home.cluster.security, user):
            return _known(home.cluster.security, user, mechanism, home.cluster.config.pulsar.full_namespace)
        return None if self._mechanisms.own is None else _known(self._mechanisms.own, user, mechanism)

    async def _home(self, user: str) -> ServedCluster | None:
        """The cluster of the listener, or the only one whose `users` have the name."""
        if self._entrance is None:
            return None
        try:
            return await self._entrance.home(self._listener, user)
        except ClusterRefused as refused:
            raise LoginFailed(str(refused)) from None


def _has(place: ScramCredentials, user: str) -> bool:
    return any(place.find(user, mechanism) is not None for mechanism in ScramMechanism)


def _known(
    place: ScramCredentials, user: str, mechanism: ScramMechanism, cluster: str | None = None
) -> KnownUser | None:
    found = place.find(user, mechanism)
    return None if found is None else KnownUser(found, cluster)
