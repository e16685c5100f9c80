"""A consumer group of real clients, and what they read. Each client has a process of its own, so that it can be killed.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from deploy.local.process import bound
from tests.integration.confluent import TIMEOUT_S, committed, create_topic
from tests.integration.native import wait_for
from tests.support.gateway_process import REPOSITORY
from tests.support.names import unique_topic

PARTITIONS = 6
RECORDS = 300

MemberCommand = Callable[..., list[str]]
"""(bootstrap, group, topic, *options) to a command line."""


def librdkafka_member(bootstrap: str, group: str, topic: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.integration.group_member", bootstrap, group, topic, *options]


class Member:
    """See group_member.py; its output is in a file."""

    def __init__(self, output: Path, command: list[str]) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                bound(command), stdout=file, stderr=subprocess.DEVNULL, cwd=REPOSITORY
            )

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def values(self) -> list[str]:
        """Complete lines only: a killed member may leave half a line."""
        return self._output.read_text().split("\n")[:-1]

    def leave(self) -> None:
        self.process.terminate()
        assert self.process.wait(TIMEOUT_S) == 0


class Group:
    """Members on one topic, and all values that any of them has read."""

    def __init__(self, work_dir: Path, bootstrap: str, *options: str, partitions: int = PARTITIONS) -> None:
        self.name = self.topic = self.subscription = unique_topic("group")
        self.partitions = partitions
        self.members: list[Member] = []
        self._work_dir = work_dir
        self._bootstrap = bootstrap
        self._options = options
        self._stack = ExitStack()
        self._sent = 0
        create_topic(bootstrap, self.topic, partitions)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    def add(self, count: int = 1, command: MemberCommand = librdkafka_member, *options: str) -> None:
        """Add members. The options are added to those of the group."""
        for _ in range(count):
            output = self._work_dir / f"member{len(self.members)}"
            own = (*self._options, *options)
            member = Member(output, command(self._bootstrap, self.name, self.subscription, *own))
            self.members.append(self._stack.enter_context(member))

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(TIMEOUT_S)
        self.partitions = partitions

    def send(self, count: int = RECORDS, topic: str | None = None) -> None:
        """Send to the partitions in turn; of another topic, to partition 0."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for number in range(self._sent, self._sent + count):
            producer.produce(topic or self.topic, str(number), partition=0 if topic else number % self.partitions)
        assert producer.flush(TIMEOUT_S) == 0
        self._sent += count

    def await_all_read(self) -> None:
        expected = {str(number) for number in range(self._sent)}
        deadline = time.monotonic() + TIMEOUT_S
        while missing := expected.difference(*(member.values for member in self.members)):
            assert time.monotonic() < deadline, f"{len(missing)} of {self._sent} records are not read: {missing}"
            time.sleep(0.1)

    def await_everybody_reads(self) -> None:
        """Send until each living member has read a record: then it is part of the group."""
        before = {member: len(member.values) for member in self.members}
        deadline = time.monotonic() + TIMEOUT_S
        while any(m.process.poll() is None and len(m.values) == before[m] for m in self.members):
            assert time.monotonic() < deadline, "some member gets no records"
            self.send(self.partitions)
            time.sleep(0.2)

    def check_order(self) -> None:
        """Each member read each partition's records in order, except those that it read again after a rebalance."""
        for member in self.members:
            last: dict[int, int] = {}
            for number in dict.fromkeys(map(int, member.values)):
                partition = number % self.partitions
                assert number > last.get(partition, -1), f"{number} comes after {last[partition]}"
                last[partition] = number

    def await_all_committed(self) -> None:
        """A member that leaves commits no more, and another one may read its records again."""
        wait_for(lambda: self.committed() == self.end_offsets, "all is committed")

    def committed(self) -> list[int]:
        return committed(self._bootstrap, self.name, self.topic, self.partitions)

    @property
    def end_offsets(self) -> list[int]:
        """The end offsets. All values must have been sent to the same partitions."""
        return [len(range(partition, self._sent, self.partitions)) for partition in range(self.partitions)]
