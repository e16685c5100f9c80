"""Kafka Streams with exactly_once_v2: WordCount.java, in a process that a test may kill."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deploy.local.jars import artifact_classpath
from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound

VERSION = "3.9.2"
SOURCE = Path(__file__).parents[1] / "integration" / "java" / "streams" / "WordCount.java"
COMPILE_TIMEOUT_S = 60
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class WordCount:
    """Counts the words of `source` into `target`. After a restart, it restores its counts from the changelog."""

    def __init__(self, work_dir: Path, bootstrap: str, application_id: str, source: str, target: str) -> None:
        self._work_dir = work_dir
        self._log = work_dir / f"{application_id}.log"
        self._starts = 0
        self._arguments = (bootstrap, application_id, source, target)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WordCount:
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start with an empty state directory, as on another machine."""
        self._starts += 1
        state = self._work_dir / f"state-{self._starts}"
        log4j = f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}"
        command = [java_executable(), *JVM_OPTIONS, log4j, "-cp", f"{self._compiled()}:{_classpath()}", "WordCount"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                bound([*command, *self._arguments, str(state)]), stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.last_words()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]

    def _compiled(self) -> Path:
        classes = self._work_dir / "classes"
        if not classes.exists():
            command = ["javac", "-encoding", "UTF-8", "-cp", _classpath(), "-d", str(classes), str(SOURCE)]
            subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
        return classes


def _classpath() -> str:
    return artifact_classpath("org.apache.kafka", "kafka-streams", VERSION)
