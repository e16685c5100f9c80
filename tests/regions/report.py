"""The results of the trials: a table on the terminal, and docs/reports/regions.md."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from tests.support.report import head, table

SHARED = ("acknowledged", "lost", "doubled", "read again", "writes stood still", "group without coordinator")
"""Values that most trials measure have a column; the others follow in a list."""
FAILED = "FAILED"


@dataclass(frozen=True)
class Seen:
    """The result of one trial; `values` is None when it failed."""

    topology: str
    name: str
    doc: str
    took_s: float
    values: Mapping[str, str] | None

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @property
    def fault(self) -> str:
        """A description of the trial: the first paragraph of its docstring."""
        return self.doc.partition("\n\n")[0].replace("\n", " ")

    @property
    def text(self) -> str:
        return FAILED if self.values is None else ", ".join(f"{what}: {value}" for what, value in self.values.items())

    def row(self) -> list[str]:
        if self.values is None:
            return [self.topology, self.title, FAILED, *[""] * len(SHARED)]
        more = "; ".join(f"{what}: {value}" for what, value in self.values.items() if what not in SHARED)
        return [self.topology, self.title, *(self.values.get(what, "") for what in SHARED), more]


class Report:
    """A report of the trials that were added, in order."""

    def __init__(self) -> None:
        self._seen: list[Seen] = []
        self._began = time.monotonic()

    def add(self, seen: Seen) -> None:
        self._seen.append(seen)

    @property
    def failures(self) -> int:
        return sum(each.values is None for each in self._seen)

    def console_table(self) -> Table:
        shown = Table("TOPOLOGY", "TRIAL", "SECONDS", "SEEN", title="Regions")
        for each in self._seen:
            shown.add_row(each.topology, each.title, f"{each.took_s:.0f}", each.text)
        return shown

    def markdown(self) -> str:
        duration_s = time.monotonic() - self._began
        faults = {(each.topology, each.title): (each.topology, each.title, each.fault) for each in self._seen}
        lines = [head("Regions", "make regions", duration_s, HOW_TO_READ)]
        lines += ["## What was seen", "", *table(HEADINGS, (each.row() for each in self._seen)), ""]
        lines += ["## The trials", "", *table(("topology", "trial", "what happens"), faults.values())]
        return "\n".join(lines) + "\n"


HEADINGS = ("topology", "trial", *SHARED, "more")
HOW_TO_READ = """\
Each topology of `deploy/topology` runs as local processes, each node in a network namespace of its own. Clients write
and read through haproxy while nodes are killed, stopped (SIGSTOP) or cut off. What to conclude for a deployment:
[guides/regions.md](../guides/regions.md).

One checker (`tests/support/traffic/history.py`) judges everything that the clients saw:

* Every acknowledged record is read once, at its offset. No offset has two values.
* The records of a producer keep their order.
* Polls go forward. Commits do not go back. A consumer that starts at a commit reads nothing before it.
* Two gateways never coordinate a group in one epoch, and no older one does after a newer one.

Another one (`tests/support/traffic/transaction_history.py`) judges transactions:

* No read_committed consumer reads a record of an aborted transaction.
* All records of a committed transaction are read, once and in order. Of no transaction only a part is read.

The columns:

* **acknowledged**: records that a broker acknowledged. **lost**, **doubled**: of those.
* **read again**: records that a group read although it had read them before.
* **writes stood still**: the longest pause of the producers. Where something stands still or is cut, clients have
  `socket.timeout.ms` at 6 s; librdkafka's default is one minute.
* **group without coordinator**: how long nobody answered for the group.
"""
