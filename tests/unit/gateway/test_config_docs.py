"""docs/configuration.md names every key, with its default and the docstring that stands with it.

`.venv/bin/python -m tests.unit.gateway.test_config_docs` writes the tables anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.config import (
    FleetSection,
    ForwardingSection,
    GroupsSection,
    HttpSection,
    KafkaSection,
    Limits,
    PulsarSection,
)

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
HEAD = "| key | default | meaning |\n| --- | --- | --- |\n"
TABLES: dict[str, type[BaseModel]] = {
    "## `[kafka]`": KafkaSection,
    "## `[pulsar]`": PulsarSection,
    "## `[groups]`": GroupsSection,
    "## `[fleet]`": FleetSection,
    "`[fleet.forwarding]` is": ForwardingSection,
    "## `[http]`": HttpSection,
    "## `[limits]`": Limits,
}
"""By the text that each comes behind."""


def table(section: type[BaseModel]) -> str:
    rows = (
        f"| `{name}` | {_default(field)} | {_meaning(field)} |\n"
        for name, field in section.model_fields.items()
        if name != "forwarding"  # it has a table of its own
    )
    return HEAD + "".join(rows)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").replace("``", "`").split())


def _replaced(page: str, mark: str, text: str) -> str:
    before, found, after = page.partition(mark)
    assert found, mark
    return before + found + re.sub(r"(?m)(^\|.*\n)+", lambda _: text, after, count=1)


@pytest.mark.parametrize("mark", TABLES)
def test_the_page_says_what_the_configuration_is(mark: str) -> None:
    assert table(TABLES[mark]) in PAGE.read_text().partition(mark)[2]


def write() -> None:
    page = PAGE.read_text()
    for mark, section in TABLES.items():
        page = _replaced(page, mark, table(section))
    PAGE.write_text(page)


if __name__ == "__main__":
    write()
