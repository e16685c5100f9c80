"""Write the archive of Pulsar's classes (see `class_archives`): `python -m deploy.local.archive_classes`.

Pulsar is started and stopped, once for each machine and version. From then on, a start takes half the CPU.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

from deploy.local.class_archives import archive_of
from deploy.local.jars import PULSAR, classpath, lock
from deploy.local.process import StartError
from deploy.local.standalone import PulsarStandalone

JVM_OPTIONS = "JDK_JAVA_OPTIONS"
DUMP_TIMEOUT_S = 120.0
POLL_S = 0.1


def write_archive() -> None:
    """Unless it is there. Raises StartError, MissingToolError and ResolveError."""
    archive = archive_of(classpath(PULSAR))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with lock(archive.with_suffix(".lock")):
        if not archive.exists():
            _write(archive)


def _write(archive: Path) -> None:
    """Rename a finished file: an archive of that name is always whole."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        os.environ[JVM_OPTIONS] = f"{os.environ.get(JVM_OPTIONS, '')} -XX:ArchiveClassesAtExit={written}"
        server = PulsarStandalone(Path(folder) / "data")
        server.start()
        try:
            server.wait_ready()
            os.kill(server.pid, signal.SIGTERM)
            deadline = time.monotonic() + DUMP_TIMEOUT_S
            while server.running and time.monotonic() < deadline:
                time.sleep(POLL_S)
        finally:
            server.kill()
        if not written.exists():
            raise StartError(f"Pulsar ended without an archive of its classes:\n{server.log_path.read_text()}")
        written.rename(archive)


if __name__ == "__main__":
    write_archive()
