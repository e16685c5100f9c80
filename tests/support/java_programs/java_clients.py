"""Apache Kafka's own Java clients, from the first to the newest: compiled, and run against a bootstrap address."""

import base64
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.jars import artifact_classpath
from deploy.local.java import java_executable
from tests.support.java_programs.compiled import compiled

SOURCES = Path(__file__).parents[2] / "integration" / "java"
RUN_TIMEOUT_S = 150
# A client lives for seconds, so a fast start is more important than fast code.
JVM_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Event = dict[str, Any]


@dataclass(frozen=True)
class JavaClient:
    version: str
    api: str
    """The folder of the Api.java that fits the version."""
    codecs: Sequence[str]
    timestamps: bool = True
    idempotent: bool = True
    has_consumer_protocol: bool = False
    """GroupMember.java compiles with this version."""

    def __str__(self) -> str:
        return self.version


OLD_CODECS = ("none", "gzip", "snappy", "lz4")
CODECS = (*OLD_CODECS, "zstd")
CLIENTS = (
    JavaClient("0.9.0.1", "v0_9", OLD_CODECS, timestamps=False, idempotent=False),
    JavaClient("0.10.2.2", "v0_10", OLD_CODECS, idempotent=False),
    JavaClient("1.1.1", "v0_11", OLD_CODECS),
    JavaClient("2.8.2", "v2_0", CODECS),
    JavaClient("3.9.2", "v2_0", CODECS),
    JavaClient("4.3.0", "v2_0", CODECS, has_consumer_protocol=True),
)


class JavaClients:
    """Their temporary files are in `work_dir`."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir

    def run(
        self, client: JavaClient, bootstrap: str, steps: Iterable[str], config: Path | None = None
    ) -> list[Event]:
        """Run RoundTrip's steps in one JVM; returns its output. `config` has additional properties of the clients."""
        java, *options = self._java(client)
        more = [] if config is None else [f"-Dclient.config={config}"]
        command = [java, *more, *options, "RoundTrip", bootstrap, *steps]
        return [_decode(json.loads(line)) for line in _run(command, RUN_TIMEOUT_S).splitlines()]

    def group_member(self, bootstrap: str, group: str, topic: str, *options: str) -> list[str]:
        """The command of a member of a consumer group with the newest client; see GroupMember.java."""
        return [*self._java(CLIENTS[-1]), "GroupMember", bootstrap, group, topic, *options]

    def _java(self, client: JavaClient) -> list[str]:
        options = [*JVM_OPTIONS, f"-Djava.io.tmpdir={self._work_dir}"]
        return [java_executable(), *options, "-cp", f"{_compiled(client)}:{_classpath(client)}"]


def fetch_newest() -> None:
    """Download the jars of the newest client, while there is a network."""
    _classpath(CLIENTS[-1])


def _compiled(client: JavaClient) -> Path:
    programs = ["RoundTrip", f"{client.api}/Api", *(["GroupMember"] if client.has_consumer_protocol else [])]
    return compiled(_classpath(client), *(SOURCES / f"{program}.java" for program in programs))


def _classpath(client: JavaClient) -> str:
    return artifact_classpath("org.apache.kafka", "kafka-clients", client.version)


def _run(command: Sequence[str], timeout_s: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _decode(event: Event) -> Event:
    for name in ("key", "value"):
        if event.get(name) is not None:
            event[name] = base64.b64decode(event[name])
    return event
