"""The Java runtime and Maven of this machine, or an error that names the Debian package to install."""

import os
import re
import shutil
import subprocess
from functools import cache

JAVA_VERSION = 17
VERSION_TIMEOUT_S = 30


class MissingToolError(RuntimeError):
    """A required program is not installed. The message names the Debian package."""


@cache
def java_executable() -> str:
    """Path of a `java` of version 17 or later: from JAVA_HOME if that is set, else from PATH."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    needed = f"Java {JAVA_VERSION} or later is needed (Debian package openjdk-{JAVA_VERSION}-jre-headless or newer)"
    if path is None:
        raise MissingToolError(f"{needed}, and none was found.")
    version = _major_version(java_build(path))
    if version < JAVA_VERSION:
        raise MissingToolError(f"{needed}, and {path} is version {version}.")
    return path


@cache
def maven_executable() -> str:
    path = shutil.which("mvn")
    if path is None:
        raise MissingToolError("Maven is needed to fetch the jars (Debian package maven), and no mvn was found.")
    return path


@cache
def java_build(path: str) -> str:
    """What a `java` says of its version and build."""
    return subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    ).stderr


def _major_version(build: str) -> int:
    """8 for `1.8.0_402`; 0 when the program does not report a version."""
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    return int(match.group(1)) if match else 0
