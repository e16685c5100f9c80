"""Finds the users of a connection: those of the configuration, of its cluster, and of the fleet's own cluster."""

from __future__ import annotations

from typing import NamedTuple

from gateway.dispatch import Entrance, ServedCluster
from gateway.login.credentials import ScramCredentials
from gateway.login.exchanges import Mechanisms, SoughtUser
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_forms import PasswordForm, UserForm, chosen_form, unknown_user, user_form


class _Place(NamedTuple):
    users: ScramCredentials
    cluster: str | None = None
    """`tenant/namespace` of the cluster whose users can use no other one."""


class UsersHere:
    """If users of several places have the same name, the configuration comes first, then the cluster, then the fleet's
    own cluster. The first place that has the name decides: no password of another place counts, of any mechanism.

    A name that no place has is not told from the others: the same work is done for it.
    """

    def __init__(self, mechanisms: Mechanisms, entrance: Entrance | None, listener: Listener) -> None:
        self._mechanisms = mechanisms
        self._entrance = entrance
        self._listener = listener

    async def find(self, user: str, mechanism: ScramMechanism | None) -> SoughtUser:
        """`mechanism` is None for the first one that the user has a password for."""
        places, missing = await self._places(user)
        place, credentials = _Place(self._mechanisms.configured), dict[ScramMechanism, ScramCredential]()
        if missing is None:
            found = ((each, _credentials(each, user)) for each in places)
            place, credentials = next((each for each in found if each[1]), (place, credentials))
        invented = chosen_form([each.users.forms for each in places], user, self._mechanisms.secret)
        form = _form_for(user_form(credentials) or invented, mechanism)
        unknown = unknown_user(form, user, self._mechanisms.secret)
        known = credentials.get(form.mechanism)
        if known is None:
            return SoughtUser(form.mechanism, unknown, missing=missing or "unknown user")
        return SoughtUser(form.mechanism, known, place.cluster)

    async def _places(self, user: str) -> tuple[list[_Place], str | None]:
        """Where to search, and why the user cannot be found if one of the places is missing."""
        configured, own = self._mechanisms.configured, self._mechanisms.own
        places, missing = [_Place(configured)], None
        if not _credentials(places[0], user):
            try:
                home = await self._home(user)
            except ClusterRefused as refused:
                home, missing = None, str(refused)
            if home is not None:
                places.append(_Place(home.cluster.security, home.cluster.config.pulsar.full_namespace))
        if own is not None:
            places.append(_Place(own))
        return places, missing

    async def _home(self, user: str) -> ServedCluster | None:
        """The cluster of the listener, or the only one whose `users` have the name. Raises ClusterRefused."""
        return None if self._entrance is None else await self._entrance.home(self._listener, user)


def _credentials(place: _Place, user: str) -> dict[ScramMechanism, ScramCredential]:
    found = {mechanism: place.users.find(user, mechanism) for mechanism in ScramMechanism}
    return {mechanism: credential for mechanism, credential in found.items() if credential is not None}


def _form_for(form: UserForm, mechanism: ScramMechanism | None) -> PasswordForm:
    """If it has no password for this mechanism: the same form whether there is a user or not."""
    if mechanism is None:
        return form[0]
    return next((each for each in form if each.mechanism is mechanism), PasswordForm(mechanism))
