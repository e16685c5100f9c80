"""The bookies of a topic's entries, read from the metadata store: a broker shows those at the time of opening a ledger.
"""

from __future__ import annotations

import re
import subprocess

from deploy.local.jars import classpath
from deploy.local.java import java_executable
from deploy.topology.description import Kind
from tests.regions.lab import Lab

SHELL_CLASS = "org.apache.bookkeeper.bookie.BookieShell"
TIMEOUT_S = 120.0
"""A Java program that starts beside all these servers."""


def bookies_of(lab: Lab, topic: str) -> list[list[str]]:
    """The bookies of each segment of each of the topic's ledgers, including the current one."""
    ledgers = [int(ledger["ledgerId"]) for ledger in lab.internal_stats("eu", topic)["ledgers"]]
    return [segment for ledger in ledgers for segment in _segments(lab, ledger)]


def _segments(lab: Lab, ledger: int) -> list[list[str]]:
    config = lab.cluster.folder / lab.topology.of(Kind.BOOKIE, region="us")[0].name / "conf"
    java = [java_executable(), "-Dlog4j2.level=INFO", "-cp", classpath("pulsar")]
    command = [*java, SHELL_CLASS, "-conf", str(config), "ledgermetadata", "-ledgerid", str(ledger)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    ensembles = re.search(r"ensembles=\{(.*?)\}", shown.stdout)
    assert ensembles is not None, shown.stdout
    return [segment.split(", ") for segment in re.findall(r"\[([^]]*)\]", ensembles[1])]
