"""The fast paths of one connection: requests that resemble an earlier one of it are not decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gateway.handlers.groups.known_commit import KnownCommits
from gateway.handlers.place import Place
from gateway.handlers.records.known_fetch import KnownFetches
from gateway.handlers.records.known_produce import KnownProduces
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from protocol.kafka.api_key import ApiKey


class KnownOfApi(Protocol):
    """The requests of one API and one connection that may come again."""

    def learn(self, call: Call[Any]) -> None:
        """Remember a request that was handled."""

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request that resembles a remembered one. False: nothing was done."""

    def close(self) -> None:
        """The client has disconnected."""


KNOWN_APIS: Mapping[int, Callable[[], KnownOfApi]] = {
    ApiKey.Produce: KnownProduces, ApiKey.Fetch: KnownFetches, ApiKey.OffsetCommit: KnownCommits
}  # fmt: skip
"""The APIs whose requests mostly resemble earlier ones."""


class KnownRequests:
    """The requests of one connection that may come again, of all APIs."""

    def __init__(self) -> None:
        self._known: dict[int, KnownOfApi] = {}
        """By API key. Most APIs have none, and many connections are idle."""

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request that resembles an earlier one. False: nothing was done."""
        known = self._known.get(frame[1]) if len(frame) > 1 else None  # the lower byte of the key is enough to choose
        return known is not None and known.handle(frame, context, place)

    def learn(self, call: Call) -> None:
        """Remember a request that was handled; the topics of a Produce request have their names then."""
        key = call.api.key
        if key in KNOWN_APIS:
            if key not in self._known:
                self._known[key] = KNOWN_APIS[key]()
            self._known[key].learn(call)

    def close(self) -> None:
        """The client has disconnected."""
        for known in self._known.values():
            known.close()
