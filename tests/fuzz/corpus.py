"""Kept inputs: a file for each target, an input in each line in base64."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
MAX_INPUT_BYTES = 1_024
MAX_FILE_BYTES = 24 * 1024


def load(target: str) -> list[bytes]:
    path = _path(target)
    return [base64.b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(target: str, inputs: Iterable[bytes]) -> None:
    """Add new inputs while there is room: large inputs are left out."""
    path = _path(target)
    text = path.read_text() if path.exists() else ""
    known = set(text.splitlines())
    for data in inputs:
        line = base64.b64encode(data).decode()
        if len(data) <= MAX_INPUT_BYTES and line not in known and len(text) + len(line) < MAX_FILE_BYTES:
            known.add(line)
            text += line + "\n"
    FOLDER.mkdir(exist_ok=True)
    path.write_text(text)


def _path(target: str) -> Path:
    return FOLDER / f"{target.replace(' ', '_')}.txt"
