"""MirrorMaker 2 between two clusters, both ways and exactly once: a dedicated process, which a test may kill."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deploy.local.jars import artifact_classpath, classpath
from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound, free_port

VERSION = "3.9.2"
MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
HOST = "127.0.0.1"
JVM_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
WORKERS = {
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",  # scanning every class of every jar takes most of the start
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "rebalance.timeout.ms": "6000",
    "producer.transaction.timeout.ms": "10000",
}
"""Settings of the Connect workers inside, which have to be given for each cluster."""
SHORT_INTERVALS = {
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "emit.heartbeats.interval.seconds": "1",
}
SINGLE_REPLICAS = [
    *(f"{kind}.storage" for kind in ("offset", "config", "status")),
    *(f"{kind}.topic" for kind in ("checkpoints", "heartbeats", "offset-syncs")),
]


class MirrorMaker:
    """A context manager. `clusters` are names with bootstrap addresses; a copy's topic has the source's name in front.
    """

    def __init__(self, work_dir: Path, clusters: dict[str, str], topics: str, groups: str) -> None:
        one, other = clusters
        self._log = work_dir / "mirror-maker.log"
        self._config = work_dir / "mirror-maker.properties"
        settings = {
            "clusters": f"{one},{other}",
            f"{one}->{other}.enabled": "true",
            f"{other}->{one}.enabled": "true",
            "topics": topics,
            "groups": groups,
            "sync.group.offsets.enabled": "true",
            "sync.topic.acls.enabled": "false",
            "offset.lag.max": "0",  # the place of each record is known, so that groups go on exactly there
            "dedicated.mode.enable.internal.rest": "true",  # as exactly-once needs it
            "listeners": f"http://{HOST}:{free_port(HOST)}",
            "replication.factor": "1",
            "offset.storage.partitions": "1",
            **{f"{name}.replication.factor": "1" for name in SINGLE_REPLICAS},
            **{f"{name}.bootstrap.servers": bootstrap for name, bootstrap in clusters.items()},
            **{f"{name}.{key}": value for name in clusters for key, value in WORKERS.items()},
            **SHORT_INTERVALS,
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MirrorMaker:
        return self

    def __exit__(self, *reason: object) -> None:
        self.kill()

    def start(self) -> None:
        jars = f"{classpath('kafka')}:{artifact_classpath('org.apache.kafka', 'connect-mirror', VERSION)}"
        options = [f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}", f"-Djava.io.tmpdir={self._config.parent}"]
        command = [java_executable(), *JVM_OPTIONS, *options, "-cp", jars, MAIN_CLASS, str(self._config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(bound(command), stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]
