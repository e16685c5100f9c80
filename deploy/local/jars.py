"""Java class paths, resolved by Maven and kept in a cache folder keyed by the pom's content.

`python -m deploy.local.jars NAME…` downloads the jars in advance.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from deploy.local.java import maven_executable

POM_DIR = Path(__file__).with_name("poms")
PULSAR = os.environ.get("PULSAR_POM", "pulsar")
"""The pom of the Pulsar that is started: `pulsar` (4.0.7), or `pulsar-4.2` (4.2.4)."""
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
HASH_LENGTH = 16
ERROR_LINES = 15
DOWNLOADED = re.compile(r"Downloaded from \S+: \S+/(?P<file>[^/\s]+\.jar) \((?P<size>[\d.]+) (?P<unit>[kMG]?)B")
ARTIFACT_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafka-gateway.local</groupId><artifactId>one-artifact</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
UNIT_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class ResolveError(RuntimeError):
    """Maven could not download the jars. The message has the last lines of its output."""


def classpath(name: str) -> str:
    """Class path of `poms/{name}.xml`. The first call on a machine downloads; later calls use the cache."""
    return pom_classpath(POM_DIR / f"{name}.xml")


def pom_classpath(pom: Path) -> str:
    """Class path of a pom's dependencies, as `DIR/*`. Raises ResolveError, MissingToolError."""
    root = cache_dir()
    target = root / f"{pom.stem}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:HASH_LENGTH]}"
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        # Maven's own repository is not safe for two processes at the same time, so one lock covers every pom.
        with lock(root / "lock"):
            if not target.exists():
                _resolve(pom, target)
    return f"{target}/*"


def artifact_classpath(group: str, artifact: str, version: str) -> str:
    """Class path of one artifact with its dependencies. Raises ResolveError, MissingToolError."""
    pom = cache_dir() / "poms" / f"{artifact}-{version}.xml"
    if not pom.exists():
        pom.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=pom.parent, delete=False) as file:
            file.write(ARTIFACT_POM.format(group=group, artifact=artifact, version=version))
        Path(file.name).rename(pom)
    return pom_classpath(pom)


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kafka-gateway" / "jars"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the lock is released when the file is closed, also when the process dies
        yield


def _resolve(pom: Path, target: Path) -> None:
    """Let Maven copy the jars to a folder next to `target`, then rename it: a folder of that name is always complete.
    """
    work = Path(tempfile.mkdtemp(prefix="resolving-", dir=target.parent))
    try:
        work.chmod(0o755)
        _run_maven(pom, work)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_maven(pom: Path, output_dir: Path) -> None:
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={output_dir}"]
    command = [maven_executable(), "--batch-mode", "--file", str(pom), MAVEN_GOAL, *options]
    lines: deque[str] = deque(maxlen=ERROR_LINES)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as maven:
        assert maven.stdout is not None
        with _progress(pom.stem) as report:
            for line in maven.stdout:
                lines.append(line.rstrip())
                report(line)
    if maven.returncode != 0:
        raise ResolveError(f"Maven could not resolve {pom.name}:\n" + "\n".join(lines))


@contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    """Shows progress on standard error, from Maven's output. Maven does not report how many jars remain."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"Fetching the jars of {name}")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"Fetching the jars of {name}")
        jar_count = 0
        total_bytes = 0

        def report(line: str) -> None:
            nonlocal jar_count, total_bytes
            if match := DOWNLOADED.search(line):
                jar_count += 1
                total_bytes += int(float(match["size"]) * UNIT_BYTES[match["unit"]])
                text = f"Fetching the jars of {name}: {jar_count} jars, {total_bytes / 1e6:.0f} MB  {match['file']}"
                progress.update(task, description=text)

        yield report


if __name__ == "__main__":
    for pom_name in sys.argv[1:]:
        classpath(pom_name)
