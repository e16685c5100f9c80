"""Members of a group in processes of their own, and what must be true of all that they tell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support.gateway_process import REPOSITORY


class FleetMember:
    """See fleet_member.py; what it tells is in a file."""

    def __init__(self, output: Path, bootstrap: str, group: str, topic: str) -> None:
        self._output = output
        command = [sys.executable, "-m", "tests.integration.fleet_member", bootstrap, group, topic]
        with output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, cwd=REPOSITORY)

    def __enter__(self) -> FleetMember:
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self._output.read_text().split("\n")[:-1]
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    @property
    def values(self) -> list[str]:
        return [value for event in self.events("values") for value in event["values"]]


def check_one_owner_each(members: list[FleetMember]) -> None:
    """In no generation is a partition assigned to two members."""
    owners: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, member in enumerate(members):
        for event in member.events("assigned"):
            for partition in event["partitions"]:
                owners[event["generation"], partition].add(number)
    assert {owned: numbers for owned, numbers in owners.items() if len(numbers) > 1} == {}


def check_commits_hold(members: list[FleetMember], committed: list[int]) -> None:
    """No acknowledged commit was lost, or overtaken by a lower one that was asked for later."""
    for partition, final in enumerate(committed):
        commits = sorted(
            (event["asked"], event["answered"], offset)
            for member in members
            for event in member.events("committed")
            for number, offset in event["offsets"].items()
            if int(number) == partition
        )
        for index, (asked, _, offset) in enumerate(commits):
            before = max((earlier for _, answered, earlier in commits[:index] if answered < asked), default=0)
            assert offset >= before, f"partition {partition}: {offset} was committed after {before}"
        assert final >= max((offset for _, _, offset in commits), default=0)
