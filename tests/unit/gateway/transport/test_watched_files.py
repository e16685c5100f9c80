"""Which changes of files are noticed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.transport import watched_files
from gateway.transport.watched_files import WatchedFiles


def written(path: Path) -> None:
    path.write_text("new")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("old")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.rename(path)


@pytest.mark.parametrize("change", [written, replaced, Path.unlink, lambda path: path.chmod(0o600)])
async def test_changes(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Among them a file that the gateway could not read at first: who copies a key gives the right to it afterwards."""
    path = tmp_path / "key.pem"
    path.write_text("old")
    path.chmod(0o644)
    files = WatchedFiles([path])
    assert not await files.have_changed()
    await asyncio.sleep(0.02)  # times of files have a resolution of some milliseconds
    change(path)
    assert await files.have_changed() and not await files.have_changed()


async def test_files_that_could_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, the process had too many open files when they changed."""
    files = WatchedFiles([tmp_path / "key.pem"])
    files.not_used()
    assert not await files.have_changed()
    monkeypatch.setattr(watched_files, "RETRY_S", 0.0)
    files.not_used()
    assert await files.have_changed() and not await files.have_changed()
