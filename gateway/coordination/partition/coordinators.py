"""The coordinators of one kind, as request handlers see them: by key, which is a group id or a transactional id."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition
from gateway.coordination.partition.kind import C, StandIns
from protocol.kafka.errors import ErrorCode

MAX_REMEMBERED_LENGTH = 256
"""Of a key whose partition is remembered. Clients may name keys of 32 KB, whether they exist or not."""

T = TypeVar("T")
R = TypeVar("R")


class Coordinators(ABC, Generic[C]):
    partitions: Sequence[CoordinatorPartition[C]] = ()
    """The partitions of the internal topic, by number; empty while the topic is not known."""

    @abstractmethod
    def run(self, key: str, call: Callable[[C, int], T]) -> T:
        """Call the key's coordinator with the time of day. A stand-in is called if the coordinator is not here."""

    @abstractmethod
    def leads(self, number: int) -> bool:
        """The partition is placed on this gateway: no other gateway answers for it."""

    def ask(
        self,
        key: str,
        call: Callable[[C, int, Callable[[T], None]], None],
        to_response: Callable[[T], R],
    ) -> asyncio.Future[R]:
        """Like `run`, for requests that are answered later: the response is made of the coordinator's reply."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def reply(answer: T) -> None:
            if not future.done():  # otherwise the client has disconnected
                future.set_result(to_response(answer))

        self.run(key, lambda coordinator, now_ms: call(coordinator, now_ms, reply))
        return future

    def partition_of(self, key: str) -> int | None:
        """The key's partition of the internal topic; None while the topic is not known."""
        return partition_of(key, len(self.partitions)) if self.partitions else None


class CoordinatesNothing(Coordinators[C]):
    """The coordinators of a gateway that coordinates nothing: every request is refused with NOT_COORDINATOR."""

    def __init__(self, stand_ins: StandIns[C], clock: WallClock) -> None:
        self._stand_ins = stand_ins
        self._clock = clock

    def run(self, key: str, call: Callable[[C, int], T]) -> T:
        return call(self._stand_ins.resigned, self._clock.now_ms())

    def leads(self, number: int) -> bool:
        return False


def retriable_error(error: ErrorCode) -> ErrorCode:
    """The error for clients that list what all partitions have, for a partition that is placed on this gateway.

    It is loading, or the lease has expired for now. Its coordinator answers NOT_COORDINATOR then, although no other
    gateway leads it: the client has to ask this gateway again.
    """
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.NOT_COORDINATOR else error


def partition_of(key: str, count: int) -> int:
    """Kafka's choice of the partition: Java's abs(String.hashCode) % count, over UTF-16 code units."""
    return (_remembered if len(key) <= MAX_REMEMBERED_LENGTH else _partition_of)(key, count)


def _partition_of(key: str, count: int) -> int:
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    magnitude = value if value < 1 << 31 else (1 << 32) - value
    return 0 if magnitude == 1 << 31 else magnitude % count


_remembered = lru_cache(maxsize=16_384)(_partition_of)
