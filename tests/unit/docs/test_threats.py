"""Each threat of the guide names an existing test."""

from __future__ import annotations

import re

from tests.unit.docs.test_guides import REPOSITORY

ROW = re.compile(r"`([\w/]+\.py)::(\w+)` \|$")


def test_each_threat_has_its_test() -> None:
    lines = (REPOSITORY / "docs" / "guides" / "threats.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert len(rows) > 20
    for row in rows:
        found = ROW.search(row)
        assert found is not None, row
        file, name = found.groups()
        text = (REPOSITORY / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
