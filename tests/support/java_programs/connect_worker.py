"""Kafka Connect with exactly-once sources: one distributed worker, which a test may kill."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from deploy.local.jars import artifact_classpath, classpath
from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound, free_port

VERSION = "3.9.2"
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
HOST = "127.0.0.1"
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
REQUEST_TIMEOUT_S = 30.0
POLL_S = 0.2


class ConnectWorker:
    """A context manager. After a restart it has the same connectors: they are stored in topics of the cluster."""

    def __init__(self, work_dir: Path, bootstrap: str, group: str) -> None:
        self._log = work_dir / f"{group}.log"
        self._port = free_port(HOST)
        self._config = work_dir / f"{group}.properties"
        string = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "exactly.once.source.support": "enabled",
            "key.converter": string,
            "value.converter": string,
            "listeners": f"http://{HOST}:{self._port}",
            "plugin.discovery": "service_load",  # scanning every class of every jar takes most of the start
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "rebalance.timeout.ms": "6000",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.storage.partitions": "2",
            **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("offset", "config", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConnectWorker:
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    def start(self, within_s: float) -> None:
        """Returns when the worker is a member of its group and answers."""
        jars = f"{classpath('kafka')}:{artifact_classpath('org.apache.kafka', 'connect-file', VERSION)}"
        options = [f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}", f"-Djava.io.tmpdir={self._config.parent}"]
        command = [java_executable(), *JVM_OPTIONS, *options, "-cp", jars, WORKER, str(self._config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(bound(command), stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + within_s
        while self._ask("GET", "/connectors") is None:
            assert self._process.poll() is None, self.last_words()
            assert time.monotonic() < deadline, self.last_words()
            time.sleep(POLL_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def create(self, name: str, within_s: float, **config: str) -> None:
        """Create a connector. The worker refuses while its group rebalances."""
        wanted = {"name": name, "config": {key.replace("_", "."): value for key, value in config.items()}}
        deadline = time.monotonic() + within_s
        while self._ask("POST", "/connectors", wanted) is None:
            assert time.monotonic() < deadline, self.last_words()
            time.sleep(POLL_S)

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The response; None when the worker does not answer, or refuses."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{HOST}:{self._port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None
