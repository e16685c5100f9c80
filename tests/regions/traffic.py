"""Real clients on a topic of a topology: an idempotent producer, a group, and a probe of the group's coordinator."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pulsar

from tests.integration.confluent import committed, create_topic, read_all
from tests.regions.lab import Lab, Writer, until
from tests.regions.member import Members
from tests.support.coordinator_probe import OFFSETS_TOPIC, CoordinatorProbe
from tests.support.names import unique_topic
from tests.support.traffic.history import Append, History, Lookup, check

PARTITIONS = 4
BEFORE_S = 3.0
READ_TIMEOUT_S = 10
SOCKET_TIMEOUT_MS = 6_000
"""These clients reconnect after this time without a response; librdkafka's default is a minute."""


class Traffic:
    """Clients whose first region is `home`. A context manager."""

    def __init__(self, lab: Lab, name: str, home: str = "eu") -> None:
        self._lab = lab
        self._stack = ExitStack()
        self.topic = self._group = unique_topic(name)
        bootstrap = lab.bootstrap(home)
        create_topic(bootstrap, self.topic, PARTITIONS)
        patience: dict[str, Any] = {"socket.timeout.ms": SOCKET_TIMEOUT_MS}
        self.writer = Writer(bootstrap, self.topic, PARTITIONS, **{"enable.idempotence": True, **patience})
        self.members = Members(bootstrap, self._group, self.topic, count=2, **patience)
        self.probe = CoordinatorProbe(lab.gateways(), unique_topic("probe"), self.topic, proxied=True)

    def __enter__(self) -> Traffic:
        self._stack.enter_context(self.members)
        self._stack.enter_context(self.probe)
        self.writer.write(BEFORE_S)
        self.members.await_commits(PARTITIONS)
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    def finish(self) -> float:
        """Wait until all is acknowledged and read. Returns the seconds that the group needed."""
        self.writer.flush()
        self.writer.check_no_errors()
        return self.members.await_values({*self.writer.offsets})

    def check(self, region: str) -> History:
        """Check that nothing contradicts Kafka's guarantees, as clients of that region see it now."""
        history = History(self.writer.writes, reads=[*self.members.reads], commits=[*self.members.commits])
        self.probe.add_to(history)
        bootstrap = self._lab.only(region)
        asked = time.monotonic()
        for partition, offset in enumerate(committed(bootstrap, self._group, self.topic, PARTITIONS)):
            history.lookups.append(Lookup(partition, offset, asked, time.monotonic()))
            history.logs[partition] = [*enumerate(read_all(bootstrap, self.topic, partition))]
        history.appends = internal_appends(self._lab, region)
        check(history)
        return history


def internal_appends(lab: Lab, region: str) -> list[Append]:
    """Every entry that was ever written to the groups' topic. Brokers that have just started may need a moment."""
    appends: list[Append] = []

    def read() -> bool:
        appends[:] = _read_internal(lab, region)
        return True

    until(read, "the topic of groups is read")
    return appends


def _read_internal(lab: Lab, region: str) -> list[Append]:
    client = pulsar.Client(
        f"pulsar://{lab.broker(region).at()}", operation_timeout_seconds=READ_TIMEOUT_S,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )  # fmt: skip
    appends: list[Append] = []
    try:
        for number in range(lab.partitions(region, OFFSETS_TOPIC)):
            name = f"persistent://{lab.system_namespace}/{OFFSETS_TOPIC}-partition-{number}"
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            while reader.has_message_available():
                appends.append(Append(number, reader.read_next(READ_TIMEOUT_S * 1000).producer_name()))
            reader.close()
    finally:
        client.close()
    return appends
