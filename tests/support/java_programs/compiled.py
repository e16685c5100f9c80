"""Java programs, compiled once for all tests that run them, also for those of the next run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.local.jars import lock

CLASSES = Path(__file__).parents[3] / "build" / "java-classes"
HASH_LENGTH = 16
TIMEOUT_S = 150
"""A compiler needs two seconds, and on a busy machine a minute."""


def compiled(class_path: str, *sources: Path) -> Path:
    """The folder with the classes of these sources. The name of a folder stands for what it was compiled from."""
    inputs = [class_path.encode(), *(source.read_bytes() for source in sources)]
    digest = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in inputs)).hexdigest()
    classes = CLASSES / f"{sources[0].stem}-{digest[:HASH_LENGTH]}"
    if not classes.exists():
        CLASSES.mkdir(parents=True, exist_ok=True)
        with lock(CLASSES / f"{classes.name}.lock"):
            if not classes.exists():
                _compile(class_path, sources, classes)
    return classes


def _compile(class_path: str, sources: Sequence[Path], classes: Path) -> None:
    """Next to `classes`, then renamed: a folder of that name is always complete."""
    work = Path(tempfile.mkdtemp(prefix="compiling-", dir=CLASSES))
    try:
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", class_path, "-d", str(work), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, f"javac failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        work.rename(classes)
    finally:
        shutil.rmtree(work, ignore_errors=True)
