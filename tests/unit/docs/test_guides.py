"""The configurations that guides and README show are accepted."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gateway.config.gateway_config import Config

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
"""Indented lines, with empty ones between them."""
SECTION = re.compile(r"^ {4}\[+[a-z.]+\]+", re.MULTILINE)


def _configurations() -> list[tuple[str, str]]:
    """(page, TOML) of each block that has a section's head."""
    return [
        (page.name, re.sub(r"^ {4}", "", block, flags=re.MULTILINE))
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        if SECTION.search(block)
    ]


def test_there_are_some() -> None:
    assert {page for page, _ in _configurations()} >= {"configure.md", "deploy.md", "secure.md"}


@pytest.mark.parametrize(("page", "text"), _configurations())
def test_configurations_are_accepted(page: str, text: str) -> None:
    Config.model_validate(tomllib.loads(text))
