"""What a case works with: the client of the trial on one side, a witness, and names that no other case uses."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spark_compat.runner.servers import Side
from tests.clients.driver import ActionError, Driver, NotApplicableError

READ_TIMEOUT_MS = 15_000
QUIET_MS = 1_500
"""If nothing arrives in this time, the case assumes that nothing will."""
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 40_000
ROUND_MS = 1_000
SETTLE_S = 10.0
POLL_S = 0.1

Record = dict[str, Any]


class Client(Driver):
    """A driver whose actions have defaults."""

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        acks: str = "all",
        codec: str = "none",
        *,
        idempotent: bool = False,
        transaction: dict[str, str] | None = None,
    ) -> list[list[int]]:
        """Partition and offset of each record."""
        options = {"acks": acks, "codec": codec, "idempotent": idempotent, "transaction": transaction}
        answers: list[list[int]] = self.call("produce", topic=topic, records=records, **options)
        return answers

    def fetch(self, topic: str, count: int, offset: int = 0, **options: Any) -> list[Record]:
        found: list[Record] = self.call("fetch", **fetching(topic, count, offset, **options))
        return found

    def join(self, group: str, *topics: str, **options: Any) -> None:
        defaults = {"pattern": None, "instance_id": None, "assignor": None, "protocol": None}
        settings = {**defaults, "session_timeout_ms": SESSION_TIMEOUT_MS, **options}
        self.call("join", group=group, topics=topics, **settings)

    def poll(self, count: int = 0, assigned: int | None = None, timeout_ms: int = REBALANCE_TIMEOUT_MS) -> Any:
        return self.call("poll", count=count, assigned=assigned, timeout_ms=timeout_ms)


@dataclass
class Lab:
    """What a case needs, for one client on one side."""

    client: Client
    witness: Client
    """librdkafka, for actions that the client of the trial cannot do or should not do itself."""
    start: Callable[[], Client]
    """Starts another process of the client."""
    prefix: str
    side: Side
    _others: list[Client] = field(default_factory=list)

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def topic(self, partitions: int = 1, suffix: str = "t", **configs: str) -> str:
        """Create a topic with the witness; return when it can be used. Configurations are written with underscores."""
        name = self.name(suffix)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.witness.call("create_topic", topic=name, partitions=partitions, configs=settings)
        for partition in range(partitions):
            eventually(partial(self._has_leader, name, partition), True)
        return name

    def _has_leader(self, topic: str, partition: int) -> bool:
        """Kafka names the leader of a new partition before the leader itself knows it; not every client asks again."""
        try:
            self.witness.call("bounds", topic=topic, partition=partition)
        except ActionError:
            return False
        return True

    def login(self, listener: str, mechanism: str | None = None, **changes: Any) -> dict[str, Any]:
        """Raises NotApplicableError if the servers were not started for this run."""
        found = self.side.login(listener, mechanism, **changes)
        if found is None:
            raise NotApplicableError("the servers' users are not known")
        return found

    def another(self) -> Client:
        client = self.start()
        self._others.append(client)
        return client

    def close(self) -> None:
        for client in self._others:
            if client.running:
                client.close()


def expect(found: Any, expected: Any) -> None:
    """Raises AssertionError, with both values."""
    assert found == expected, f"{found} instead of {expected}"


def eventually(read: Callable[[], Any], expected: Any) -> None:
    """Wait until `read` returns the expected value: brokers apply a change some time after they answer. Raises
    AssertionError."""
    deadline = time.monotonic() + SETTLE_S
    while (found := read()) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(POLL_S)


def fetching(
    topic: str,
    count: int,
    offset: int = 0,
    *,
    partition: int = 0,
    timeout_ms: int = READ_TIMEOUT_MS,
    max_bytes: int | None = None,
    isolation: str = "read_uncommitted",
) -> dict[str, Any]:
    """The arguments of a fetch."""
    where = {"topic": topic, "partition": partition, "offset": offset, "count": count}
    return {**where, "timeout_ms": timeout_ms, "max_bytes": max_bytes, "isolation": isolation}


def record(
    value: bytes | None,
    key: bytes | None = None,
    partition: int | None = 0,
    timestamp: int | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> Record:
    return {
        "value": encoded(value),
        "key": encoded(key),
        "partition": partition,
        "timestamp": timestamp,
        "headers": [[name, encoded(each)] for name, each in headers],
    }


def numbered(count: int, partitions: int = 1, prefix: str = "v") -> list[Record]:
    """Records v0, v1, … with keys, distributed round-robin to the partitions."""
    return [record(b"%s%d" % (prefix.encode(), n), b"k%d" % n, n % partitions) for n in range(count)]


def shown(records: Iterable[Record], *names: str) -> list[list[Any]]:
    """The fields of records that are compared: offset, key and value, or the named fields."""
    return [[each[name] for name in names or ("offset", "key", "value")] for each in records]


def sent(records: Sequence[Record], offset: int = 0) -> list[list[Any]]:
    """What `shown` must return for records that were produced to one partition, from this offset."""
    return [[offset + index, each["key"], each["value"]] for index, each in enumerate(records)]


def values(records: Iterable[Record]) -> list[str]:
    return sorted(base64.b64decode(each["value"]).decode() for each in records)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def poll_together(*polls: tuple[Client, dict[str, Any]]) -> list[Any]:
    """Members of a group poll at the same time, and continue until all have what they need: none can join alone.

    Each poll names the number of records (`count`) or partitions (`assigned`) that its member needs. Members do not
    wait for each other between polls: old Java clients stay in a poll until the others have joined, whatever its
    timeout.
    """
    found: list[dict[str, Any]] = [{"records": [], "assigned": []} for _ in polls]
    deadline = time.monotonic() + REBALANCE_TIMEOUT_MS / 1000
    ended = threading.Event()

    def keep_polling(client: Client, wanted: dict[str, Any], so_far: dict[str, Any]) -> None:
        try:
            while not ended.is_set() and time.monotonic() < deadline:
                left = max(0, wanted.get("count", 0) - len(so_far["records"]))
                answer = client.poll(left, wanted.get("assigned"), ROUND_MS)
                so_far["records"] += answer["records"]
                so_far["assigned"] = answer["assigned"]
                if all(_has(each, **wish) for (_, wish), each in zip(polls, found, strict=True)):
                    break
        finally:
            ended.set()

    with ThreadPoolExecutor(len(polls)) as pool:
        clients, wishes = zip(*polls, strict=True)
        for _ in pool.map(keep_polling, clients, wishes, found):
            pass
    return found


def _has(found: dict[str, Any], count: int = 0, assigned: int | None = None) -> bool:
    return len(found["records"]) >= count and assigned in (None, len(found["assigned"]))
