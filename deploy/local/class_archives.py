"""Archives of the classes that a server has loaded: the next JVM maps them instead of reading and verifying them again.

`deploy.local.archive_classes` writes Pulsar's. Without it, or with one that does not fit, a JVM starts as always.
"""

import hashlib
import os
from pathlib import Path

from deploy.local.jars import cache_dir
from deploy.local.java import java_build, java_executable

KEY_LENGTH = 16


def archive_of(class_path: str) -> Path:
    """The archive of a class path that begins with the jars of a `classpath`, for this Java; it need not exist."""
    build = hashlib.sha256(java_build(java_executable()).encode()).hexdigest()[:KEY_LENGTH]
    jars = Path(class_path.split(os.pathsep, maxsplit=1)[0]).parent
    return cache_dir().with_name("classes") / f"{jars.name}-{build}.jsa"


def archive_options(class_path: str) -> list[str]:
    """JVM options that use the archive; none if it was not written."""
    archive = archive_of(class_path)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
