"""Archives of loaded classes: found if they fit, written once, and never in parts. A script is the server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import archive_classes, class_archives
from deploy.local.class_archives import archive_of, archive_options
from deploy.local.process import ChildProcess, StartError

JARS = "/jars/pulsar-1234/*"
DUMPS = """
import os, signal, sys, time

def end(*_):
    option = os.environ["JDK_JAVA_OPTIONS"].split()[-1]
    open(option.removeprefix("-XX:ArchiveClassesAtExit="), "w").write("classes")
    sys.exit()

signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


class Server:
    """Its program writes an archive, or does not."""

    started = 0
    program = DUMPS

    def __init__(self, data_dir: Path) -> None:
        self._process = ChildProcess("the server", data_dir / "log")
        self.log_path = self._process.log_path

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def start(self) -> None:
        Server.started += 1
        self._process.start([sys.executable, "-c", self.program])

    def wait_ready(self) -> None:
        self._process.wait_until(lambda: "ready" in self.log_path.read_text(), 30)

    def kill(self) -> None:
        self._process.kill()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC")
    monkeypatch.setattr(class_archives, "java_executable", lambda: "java")
    monkeypatch.setattr(class_archives, "java_build", lambda path: "17.0.15")
    monkeypatch.setattr(archive_classes, "classpath", lambda name: JARS)
    monkeypatch.setattr(archive_classes, "PulsarStandalone", Server)
    monkeypatch.setattr(Server, "started", 0)
    yield


def test_an_archive_is_written_once_and_used() -> None:
    assert archive_options(JARS) == []
    archive_classes.write_archive()
    archive_classes.write_archive()
    assert Server.started == 1
    assert archive_of(JARS).read_text() == "classes"
    assert archive_options(JARS) == [f"-XX:SharedArchiveFile={archive_of(JARS)}"]
    assert {file.suffix for file in archive_of(JARS).parent.iterdir()} == {".jsa", ".lock"}


def test_each_build_of_java_and_each_set_of_jars_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive_of(JARS)
    assert archive_of("/jars/pulsar-5678/*") != first
    assert archive_of(f"{JARS}:/elsewhere/classes") == first, "the archive serves what follows, too"
    monkeypatch.setattr(class_archives, "java_build", lambda path: "21.0.1")
    assert archive_of(JARS) != first


def test_a_server_that_writes_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "program", "import time; print('ready', flush=True); time.sleep(60)")
    with pytest.raises(StartError, match="without an archive"):
        archive_classes.write_archive()
    assert archive_options(JARS) == []
