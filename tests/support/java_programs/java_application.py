"""A Java program of one source file, in a process that a test may kill and start again."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound
from tests.support.java_programs.compiled import compiled

JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}")


class JavaApplication:
    """All its files are in `work_dir`. As a context, it is killed at the end."""

    def __init__(self, work_dir: Path, source: Path, classpath: str, jvm_options: Sequence[str]) -> None:
        self._log = work_dir / f"{source.stem}.log"
        options = [*JVM_OPTIONS, *jvm_options, f"-Djava.io.tmpdir={work_dir}"]  # what is killed removes no files
        classes = compiled(classpath, source)
        self._java = [java_executable(), *options, "-cp", f"{classes}:{classpath}", source.stem]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    def run(self, *arguments: str) -> None:
        """Start a process, which `kill` ends."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(bound([*self._java, *arguments]), stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.last_words()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]
