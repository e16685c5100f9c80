"""Kafka Streams with exactly_once_v2: WordCount.java, in a process that a test may kill."""

from pathlib import Path

from deploy.local.jars import artifact_classpath
from tests.support.java_programs.java_application import JavaApplication
from tests.support.java_programs.java_clients import SOURCES

VERSION = "3.9.2"


class WordCount(JavaApplication):
    """Counts the words of `source` into `target`. After a restart, it restores its counts from the changelog."""

    def __init__(self, work_dir: Path, bootstrap: str, application_id: str, source: str, target: str) -> None:
        classpath = artifact_classpath("org.apache.kafka", "kafka-streams", VERSION)
        super().__init__(work_dir, SOURCES / "streams" / "WordCount.java", classpath, ["-Xmx256m"])
        self._work_dir = work_dir
        self._starts = 0
        self._arguments = (bootstrap, application_id, source, target)

    def start(self) -> None:
        """Start with an empty state directory, as on another machine."""
        self._starts += 1
        self.run(*self._arguments, str(self._work_dir / f"state-{self._starts}"))
