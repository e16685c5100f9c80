"""Pulsar's own transactions, by its Java client: the Python client has none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import IO, Self

from deploy.local.jars import PULSAR, classpath
from deploy.local.java import java_executable
from deploy.local.process import bound
from deploy.local.standalone import LOG4J_CONFIG, PulsarStandalone

SOURCE = Path(__file__).with_name("java") / "NativeTransactions.java"
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configurationFile={LOG4J_CONFIG}")
COORDINATOR = {"transactionCoordinatorEnabled": "true"}
"""Settings of a Pulsar with transactions."""


class NativeTransactions:
    """A client of `server`, in a process of its own, that sends to topics of `namespace`. Ends with the context."""

    def __init__(self, server: PulsarStandalone, namespace: str, log_path: Path) -> None:
        self._namespace = namespace
        self._log_path = log_path
        self._command = [java_executable(), *JVM_OPTIONS, "-cp", classpath(PULSAR), str(SOURCE), server.service_url]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(bound(self._command), stdin=pipe, stdout=pipe, stderr=log, text=True)
        return self

    def __exit__(self, *reason: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def begin(self, *names: str) -> None:
        for name in names:
            self._ask("begin", name)

    def send(self, topic: str, value: str, transaction: str = "-") -> None:
        """Send to the topic's first partition."""
        self._ask("send", transaction, f"persistent://{self._namespace}/{topic}-partition-0", value)

    def commit(self, *names: str) -> None:
        for name in names:
            self._ask("commit", name)

    def abort(self, *names: str) -> None:
        for name in names:
            self._ask("abort", name)

    def _ask(self, *words: str) -> None:
        assert self._process is not None
        commands, answers = _open(self._process.stdin), _open(self._process.stdout)
        print(*words, file=commands, flush=True)
        assert answers.readline(), self._log_path.read_text(errors="replace")[-3_000:]


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
