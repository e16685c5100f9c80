"""Pulsar's compaction ends immediately in these tests."""

from __future__ import annotations

import pytest

from gateway.log.cleaning import cleaner


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "ASK_S", 0)
