"""Members of a group in processes of their own, and the history that they record."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.local.process import bound
from tests.integration.confluent import Sender, committed, read_all
from tests.support.gateway_process import REPOSITORY
from tests.support.traffic.history import Commit, History, Lookup, Read, Share, Write

LAST_EVENTS = 8


class FleetMember:
    """See fleet_member.py; its output is in a file."""

    def __init__(self, output: Path, bootstrap: str, group: str, topic: str) -> None:
        self._output = output
        self._errors = output.with_suffix(".stderr")
        command = [sys.executable, "-m", "tests.integration.fleet_member", bootstrap, group, topic]
        with output.open("wb") as file, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(bound(command), stdout=file, stderr=errors, cwd=REPOSITORY)

    def __enter__(self) -> FleetMember:
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait()

    def check_alive(self) -> None:
        status = self.process.poll()
        assert status is None, f"{self._output.name} ended with {status}: {self._errors.read_text()[-2_000:]}"

    @property
    def generation(self) -> int:
        """That of its last assignment; -1 if it had none."""
        return max((event["generation"] for event in self._events() if event["event"] == "assigned"), default=-1)

    @property
    def last_events(self) -> str:
        """Its last events and errors, without the values of records."""
        facts = [
            event | {"records": len(event["records"])} if event["event"] == "read" else event
            for event in self._events()[-LAST_EVENTS:]
        ]
        return f"{self._output.name}: {facts} {self._errors.read_text()[-500:]}"

    @property
    def values(self) -> list[str]:
        return [value for event in self._events() if event["event"] == "read" for _, _, value in event["records"]]

    def add_to(self, history: History) -> None:
        name, stint, since = self._output.name, 0, 0.0
        for event in self._events():
            match event["event"]:
                case "assigned":
                    stint, since = stint + 1, event["at"]
                    history.shares.append(Share(name, event["generation"], tuple(event["partitions"])))
                case "read":
                    history.reads += [
                        Read(name, stint, partition, offset, value.encode(), since)
                        for partition, offset, value in event["records"]
                    ]
                case "committed":
                    history.commits += [
                        Commit(int(partition), offset, event["asked"], event["answered"])
                        for partition, offset in event["offsets"].items()
                    ]

    def _events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._output.read_text().split("\n")[:-1]]


class FleetGroup:
    """Members of one group, and what was sent to the partitions that they read: all records are different."""

    def __init__(self, members: Sequence[FleetMember], senders: Sequence[Sender]) -> None:
        """``senders`` has one for each partition, in order."""
        self._members = members
        self._senders = senders
        self._sent: set[str] = set()

    def send(self, text: str, count: int = 100) -> None:
        for partition, sender in enumerate(self._senders):
            values = [f"{partition} {text} {number}" for number in range(count)]
            sender.send(value.encode() for value in values)
            self._sent.update(values)

    def all_is_read(self) -> bool:
        for member in self._members:
            member.check_alive()
        return not self._unread()

    def is_in_one_generation(self) -> bool:
        """So no join is pending. A group can read all with some of its members."""
        generations = {member.generation for member in self._members}
        return len(generations) == 1 and -1 not in generations

    def leave(self, timeout_s: float) -> None:
        for member in self._members:
            member.process.terminate()
        for member in self._members:
            member.process.wait(timeout_s)

    def state(self) -> str:
        """What it is about if not all is read."""
        unread = Counter(int(value.split()[0]) for value in self._unread())
        acknowledged = [f"{each.acknowledged} of {len(each.sent)} {each.errors}" for each in self._senders]
        lines = [f"unread by partition: {unread}", f"acknowledged: {acknowledged}"]
        return "\n".join([*lines, *(member.last_events for member in self._members)])

    def _unread(self) -> set[str]:
        return self._sent - {value for member in self._members for value in member.values}


def history_of(
    bootstrap: str, topic: str, group: str, members: Sequence[FleetMember], writes: Sequence[Write], partitions: int
) -> History:
    """The complete history of a topic with one group, at the end of a trial."""
    history = History([*writes])
    for member in members:
        member.add_to(history)
    asked = time.monotonic()
    for partition, offset in enumerate(committed(bootstrap, group, topic, partitions)):
        history.lookups.append(Lookup(partition, offset, asked, time.monotonic()))
        history.logs[partition] = [*enumerate(read_all(bootstrap, topic, partition))]
    return history
