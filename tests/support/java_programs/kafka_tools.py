"""Apache Kafka's own command-line tools, in one JVM for each server, because starting a JVM takes longer than a tool
runs."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import NamedTuple

from deploy.local.jars import classpath
from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound
from tests.support.java_programs.compiled import compiled

SOURCE = Path(__file__).parents[2] / "integration" / "java" / "Tools.java"
STOP_TIMEOUT_S = 10
JVM_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Printed(NamedTuple):
    status: int
    text: str


class KafkaTools:
    """Call it with a tool's class and arguments. A context manager."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        """`options` of the JVM."""
        self.bootstrap = bootstrap
        log4j = f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}"
        jars = classpath("kafka")
        classes = compiled(jars, SOURCE)
        command = [java_executable(), *JVM_OPTIONS, *options, log4j, "-cp", f"{classes}:{jars}", "Tools"]
        self._process = subprocess.Popen(
            bound(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *reason: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=STOP_TIMEOUT_S)

    def __call__(self, tool: str, *arguments: str, reads: str = "") -> Printed:
        assert self._process.stdin is not None and self._process.stdout is not None
        parts = (tool, reads, "--bootstrap-server", self.bootstrap, *arguments)
        # Each text has a prefix, because an empty text has no base64.
        print(*("=" + b64encode(part.encode()).decode() for part in parts), file=self._process.stdin, flush=True)
        status, _, printed = self._process.stdout.readline().partition(" ")
        assert status, f"the JVM ended in {tool}"
        return Printed(int(status), b64decode(printed).decode())
