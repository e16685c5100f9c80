"""The names of the existing topics: one cached listing, shared by concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set as AbstractSet

import structlog

from gateway.background import run_shared
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import PARTITION
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.topics import topic_names

log = structlog.get_logger()


class TopicListing:
    """The topics that clients may see. If Pulsar cannot list them, the previous listing is used."""

    def __init__(
        self, admin: AdminClient, namespace: str, system_namespace: str, max_age_s: float, timeout_s: float
    ) -> None:
        """In the ``system_namespace``, clients see only Kafka's own internal topics."""
        self._admin = admin
        self._namespace = namespace
        self._system_namespace = system_namespace
        self._max_age_s = max_age_s
        self._timeout_s = timeout_s
        self._names: set[str] | None = None
        self._asked_at = float("-inf")
        self._listing: asyncio.Task[AbstractSet[str]] | None = None
        """The listing that runs."""
        self._next: asyncio.Task[AbstractSet[str]] | None = None
        """The listing that has not begun."""
        self._noted: dict[str, bool] = {}

    @property
    def known(self) -> AbstractSet[str] | None:
        """The names of the last listing; None if there was no listing yet."""
        return self._names

    async def names(self, *, fresh: bool = False) -> AbstractSet[str]:
        """The names of a recent listing. Raises PulsarError if there was never a listing."""
        if not fresh and self._names is not None and time.monotonic() - self._asked_at <= self._max_age_s:
            return self._names
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(self._listing or self._following())
        except (PulsarError, TimeoutError) as error:
            if self._names is None:
                raise error if isinstance(error, PulsarError) else RequestTimeoutError("listing of topics") from error
            log.warning("cannot list topics: using the previous list", error=str(error) or "timed out")
            self._asked_at = time.monotonic()
        assert self._names is not None
        return self._names

    async def names_now(self) -> AbstractSet[str]:
        """The names that Pulsar lists after this call. Callers share a listing that has not begun. Raises PulsarError.

        What is noted is not taken out: a deletion may be announced when there is a new topic with the name.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._following())
        except TimeoutError as error:
            raise RequestTimeoutError("listing of topics") from error

    def note(self, name: str, *, exists: bool) -> None:
        """Record what this gateway itself has learned: a listing in progress may be older."""
        if self._listing is not None:
            self._noted[name] = exists
        if self._names is not None:
            (self._names.add if exists else self._names.discard)(name)

    def _following(self) -> asyncio.Task[AbstractSet[str]]:
        """A listing that begins after this call."""
        if self._next is None:
            self._next = run_shared("listing of topics", self._list())
        return self._next

    async def _list(self) -> AbstractSet[str]:
        while self._listing is not None:
            await asyncio.wait([self._listing])
        self._listing, self._next = self._next, None
        self._noted.clear()
        try:
            listed = await self._read()
        finally:
            self._listing = None
        self._names, self._asked_at = set(listed), time.monotonic()
        for name, exists in self._noted.items():
            self.note(name, exists=exists)
        return listed

    async def _read(self) -> set[str]:
        topics = self._admin.topics
        partitioned, single = await asyncio.gather(
            topics.list_partitioned(self._namespace), topics.list_topics(self._namespace)
        )
        names = await asyncio.to_thread(_kafka_names, partitioned, single)
        if self._system_namespace == self._namespace:
            return names
        system = await topics.list_partitioned(self._system_namespace)
        internal = {name.rpartition("/")[2] for name in system} & topic_names.INTERNAL_TOPICS
        return names - topic_names.INTERNAL_TOPICS | internal


def _kafka_names(partitioned: list[str], single: list[str]) -> set[str]:
    """``single`` also contains each partition of the partitioned topics."""
    whole = set(partitioned)
    plain = (name for name in single if name.rpartition(PARTITION)[0] not in whole)
    found = (topic_names.from_pulsar(name.rpartition("/")[2]) for name in (*partitioned, *plain))
    return {name for name in found if name is not None}
