"""Links between the project's pages lead to files that exist, and to headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
FOLDERS = ("docs", "deploy", "tests", "spark_compat")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"\bdocs/[\w./-]+\.md\b")
"""The form in which README and docstrings name a page."""
SOURCES = ("gateway", "coordinator", "protocol", "deploy", "tests", "spark_compat")


def _pages() -> list[Path]:
    return [*REPOSITORY.glob("*.md"), *(page for folder in FOLDERS for page in (REPOSITORY / folder).rglob("*.md"))]


def _anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [*_broken(page)] == []


def test_pages_that_are_named_exist() -> None:
    files = [REPOSITORY / "Makefile", *_pages()]
    files += [file for folder in SOURCES for file in (REPOSITORY / folder).rglob("*.py")]
    named = {(file, name) for file in files for name in NAMED.findall(file.read_text())}
    # The report may not be written yet.
    written = {(file, name) for file, name in named if name.startswith("docs/reports/")}
    assert [f"{file}: {name}" for file, name in named - written if not (REPOSITORY / name).exists()] == []
