"""Gateways of earlier commits, for tests of upgrades: `GatewayProcess.sources` takes the folder."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.support.gateway_process import REPOSITORY

PACKAGES = ("gateway", "coordinator", "protocol")
NO_DOWNLOAD = ("-c", "protocol.allow=never")
"""A partial clone would otherwise fetch missing files from its remote."""


class NotInThisCloneError(Exception):
    """The clone is shallow, or it is no clone."""


def extract_sources(commit: str, folder: Path) -> Path:
    """The code of the gateway in that commit. Raises NotInThisCloneError."""
    archive = ["git", "-C", str(REPOSITORY), *NO_DOWNLOAD, "archive", commit, *PACKAGES]
    try:
        found = subprocess.run(archive, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInThisCloneError(f"the older gateways are commit {commit[:7]}, which is not in this clone") from error
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as sources:
        sources.extractall(folder, filter="data")
    return folder
