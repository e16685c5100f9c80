"""The report shows all results, failing jobs included."""

import json
from pathlib import Path

import pytest

from spark_compat.runner import report
from spark_compat.runner.report import write_report
from spark_compat.runner.verdict import DIFFERS, FAILED, SAME, Outcome, Verdict


def _verdict(kafka: Outcome, gateway: Outcome) -> Verdict:
    return Verdict("batch_read", "Reads.", kafka, gateway)


def _rows(*rows: str) -> Outcome:
    return Outcome(2.0, {"all": list(rows)})


@pytest.mark.parametrize(
    ("kafka", "gateway", "result"),
    [
        (_rows("[1]"), _rows("[1]"), SAME),
        (_rows("[1]"), _rows("[2]"), DIFFERS),
        (_rows("[1]"), Outcome(1.0, error="Timeout: x"), FAILED),
        (Outcome(1.0, error="Timeout: x"), _rows("[1]"), FAILED),
        (Outcome(1.0, error="Timeout: x"), Outcome(1.0, error="Timeout: x"), FAILED),
        (Outcome(1.0, {}), Outcome(1.0, {}), FAILED),
    ],
)
def test_results(kafka: Outcome, gateway: Outcome, result: str) -> None:
    assert _verdict(kafka, gateway).result == result


def test_the_report_has_every_version_and_lists_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS_DIR", tmp_path / "results")
    monkeypatch.setattr(report, "REPORT", tmp_path / "spark.md")
    write_report("3.5.7", _verdict(_rows("[1]", "[2]"), Outcome(3.0, {"all": ["[1]", "[2]"]})))
    write_report("4.0.0", _verdict(_rows("[1]"), Outcome(1.0, error="Timeout: nothing came")))
    text = (tmp_path / "spark.md").read_text()
    assert text.index("## Spark 4.0.0: 0 of 1") < text.index("## Spark 3.5.7: 1 of 1")
    assert "| same | 2 | 2.0 | 3.0 | 1.50 |" in text
    assert "| failed | 1 | 2.0 | 1.0 |  |" in text
    assert "- batch_read: gateway: Timeout: nothing came" in text


def test_results_are_kept_for_the_next_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS_DIR", tmp_path)
    monkeypatch.setattr(report, "REPORT", tmp_path / "spark.md")
    write_report("4.0.0", _verdict(_rows("[1]"), _rows("[2]")))
    write_report("4.0.0", _verdict(_rows("[1]"), _rows("[1]")))
    kept = json.loads((tmp_path / "4.0.0.json").read_text())
    assert kept["batch_read"]["result"] == SAME
    assert kept["batch_read"]["kafka"] == {"seconds": 2.0, "rows": {"all": 1}, "error": None, "timings": {}}
