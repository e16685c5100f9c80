"""Fixtures of the tests that compare both ways of a request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.gateway.handlers.both_ways import SECTIONS


@pytest.fixture(params=SECTIONS)
def sections(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Configurations of gateways whose ways are compared."""
    return SECTIONS[request.param]
