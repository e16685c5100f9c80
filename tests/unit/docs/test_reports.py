"""A report names its command and date, and people can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.regions.report import Report, Seen
from tests.support.report import REPORTS, head, table

MAX_TEXT_COLUMNS = 200
"""Rows of tables may be longer."""


@pytest.mark.parametrize("report", sorted(REPORTS.glob("*.md")), ids=lambda report: report.name)
def test_reports_begin_with_their_origin(report: Path) -> None:
    lines = report.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[2].startswith(("Written by `", "Run by hand: "))
    assert max(len(line) for line in lines if not line.startswith("|")) <= MAX_TEXT_COLUMNS


def test_head() -> None:
    lines = head("Fleet", "make fleet", 125.0, "What it is.\n").splitlines()
    assert lines[0] == "# Fleet"
    assert lines[2].startswith("Written by `make fleet`: ") and lines[2].endswith(", 2 minutes.")
    assert " cores, " in lines[3]
    assert lines[4:] == ["", "What it is."]


def test_tables_align_numbers_and_escape() -> None:
    lines = table(("what", "count"), [("a|b", "1")], texts=1)
    assert lines == ["| what | count |", "| --- | --: |", "| a\\|b | 1 |"]


def test_regions_have_a_column_for_what_most_trials_measure() -> None:
    report = Report()
    report.add(Seen("sync", "lose_a_bookie", "A bookie is killed.\n\nMore.", 3.0, {"lost": "0", "copied": "2 s"}))
    report.add(Seen("geo", "write_in_both", "Both regions write.", 3.0, None))
    text = report.markdown()
    assert "| sync | lose a bookie |  | 0 |  |  |  |  | copied: 2 s |" in text
    assert "| geo | write in both | FAILED |" in text
    assert "| sync | lose a bookie | A bookie is killed. |" in text
    assert report.failures == 1
