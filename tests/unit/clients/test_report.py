"""The report of the clients shows all results: failures with their cause, and what was not run."""

from pathlib import Path

import pytest

from tests.clients import report
from tests.clients.__main__ import parsed, report_file
from tests.clients.report import as_results, report_text, unavailable, version_section
from tests.clients.verdict import FAIL, NOT_APPLICABLE, PASS, Outcome, Verdict


def _verdict(kafka: Outcome, gateway: Outcome, feature: str = "fetch", title: str = "from the start") -> Verdict:
    return Verdict(title.replace(" ", "_"), feature, title, kafka, gateway)


@pytest.mark.parametrize(
    ("kafka", "gateway", "result", "cause"),
    [
        (Outcome([1]), Outcome([1]), PASS, ""),
        (Outcome(), Outcome(), PASS, ""),
        (Outcome([1]), Outcome([2]), FAIL, "[2] instead of [1]"),
        (Outcome([1]), Outcome(error="Timeout"), FAIL, "Timeout"),
        (Outcome([1]), Outcome(unsupported="no zstd"), FAIL, "no zstd"),
        (Outcome(unsupported="no headers"), Outcome(unsupported="no headers"), NOT_APPLICABLE, "no headers"),
        (Outcome(error="Timeout"), Outcome([1]), NOT_APPLICABLE, "fails on Apache Kafka, not on the gateway: Timeout"),
        (Outcome(error="A"), Outcome(error="A"), NOT_APPLICABLE, "fails on Apache Kafka, on the gateway alike: A"),
    ],
)
def test_verdicts(kafka: Outcome, gateway: Outcome, result: str, cause: str) -> None:
    verdict = _verdict(kafka, gateway)
    assert (verdict.result, verdict.cause) == (result, cause)


def test_the_report_lists_failures_and_what_does_not_apply() -> None:
    good = _verdict(Outcome([1]), Outcome([1]))
    bad = _verdict(Outcome([1]), Outcome(error="Timeout"), title="at the end")
    none = _verdict(Outcome(unsupported="no groups"), Outcome(unsupported="no groups"), "groups", "subscribe")
    clients = [
        as_results("Wire", "2.0", "Go", [good, none]),
        unavailable("Ghost", "3.0", "Rust", "cargo is not installed"),
        as_results("Wire", "1.0", "Go", [good, bad, none]),
    ]
    lines = report_text(clients, {}).splitlines()
    assert "| client | fetch | groups |" in lines
    at = lines.index("| Wire 2.0 | pass 1/1 | n/a |")
    assert lines[at + 1] == "| Wire 1.0 | **fail** 1/2 | n/a |"
    assert "* Ghost 3.0: cargo is not installed" in lines
    at = lines.index("* Timeout")
    assert lines[at + 1] == "    * Wire 1.0: fetch: at the end"
    assert "| at the end | 0 of 1 | Wire 1.0 |  |" in lines
    assert "| subscribe | 0 of 2 |  | Wire 2.0, Wire 1.0 |" in lines
    assert "| Wire 2.0 | groups: subscribe | no groups |" in lines


def test_a_cause_is_reported_once_and_no_line_is_long() -> None:
    """The report is for people: rows of tables may be long, text may not."""
    failing = [_verdict(Outcome([1]), Outcome(error="Timeout " * 99), title=f"case {n}") for n in range(50)]
    clients = [as_results("Wire", version, "Go", failing) for version in ("1.0", "2.0")]
    lines = report_text(clients, {}).splitlines()
    assert len([line for line in lines if line.startswith("* Timeout")]) == 1
    assert "    * Wire 2.0: fetch: case 0 and 49 more" in lines
    assert max(len(line) for line in lines if not line.startswith("|")) < 200


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        ([], report.REPORT),
        (["--cases", "transactions"], None),
        (["3.9.2"], None),
        (["--kafka", "localhost:9092"], None),
        (["--gateway", "localhost:9092"], None),
        (["3.9.2", "--report", "part.md"], Path("part.md")),
    ],
)
def test_a_run_of_a_part_does_not_replace_the_report_of_the_whole(arguments: list[str], file: Path | None) -> None:
    assert report_file(parsed(arguments)) == file


def test_versions_stand_side_by_side() -> None:
    lines = version_section({"gateway": {"Fetch": [0, 17]}, "Kafka": {"Fetch": [4, 18], "EndTxn": [0, 5]}})
    assert "| Fetch | 0 to 17 | 4 to 18 |" in lines
    assert "| EndTxn | n/a | 0 to 5 |" in lines
