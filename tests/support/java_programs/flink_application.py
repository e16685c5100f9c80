"""Flink's source and exactly-once sink: Copier.java, in a process that a test may kill."""

from pathlib import Path

from deploy.local.jars import pom_classpath
from tests.support.java_programs.java_application import JavaApplication
from tests.support.java_programs.java_clients import SOURCES

FLINK = SOURCES / "flink"
PACKAGES = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent")
"""Flink looks into them by reflection."""


class Copier(JavaApplication):
    """Copies the values of `source` to `target`, and goes on from its last checkpoint after a restart."""

    def __init__(self, work_dir: Path, bootstrap: str, job: str, source: str, target: str) -> None:
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in PACKAGES]
        super().__init__(work_dir, FLINK / "Copier.java", pom_classpath(FLINK / "flink.xml"), ["-Xmx512m", *opened])
        self._checkpoints = work_dir / "checkpoints"
        self._arguments = (bootstrap, job, source, target, self._checkpoints.as_uri())

    def start(self) -> None:
        last = self._last_checkpoint()
        self.run(*self._arguments, *([] if last is None else [last.as_uri()]))

    def _last_checkpoint(self) -> Path | None:
        """The newest that is complete: CHECKPOINTS/JOB/chk-NUMBER with its metadata. Each start is a new job."""
        complete = self._checkpoints.glob("*/chk-*/_metadata")
        return max((file.parent for file in complete), key=lambda path: path.stat().st_mtime, default=None)
