"""docs/reports/conformance.md: the results of one run for each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.clients.api_versions import Versions
from tests.clients.verdict import FAIL, NOT_APPLICABLE, PASS, Verdict
from tests.support.report import REPORTS, commit, machine, table, today

REPORT = REPORTS / "conformance.md"
SIGNS = {PASS: "pass", FAIL: "**fail**", NOT_APPLICABLE: "n/a"}
NOT_TRIED = {
    "Confluent.Kafka (.NET)": "Debian has no .NET SDK; the client wraps librdkafka, which is tried here",
}
"""Client → the reason why it has no column."""

CAUSE_LENGTH = 160

Results = dict[str, Any]
"""The results of one client: name, version, language, and its verdicts, or why it is not available."""

HEAD = """\
# Public clients

Written by `make conformance`: {date}, commit {commit}, {cores} cores, {system}, Python {python}.

Public client libraries do the same with Apache Kafka 3.9.2 and with the gateway on Pulsar 4.0.7. What they report is
compared: offsets, records, errors by name. A second client, librdkafka, checks what they wrote, and writes what they
read.

* **pass**: the same on both, and as expected.
* **fail**: different, or not as expected. The causes are below.
* **n/a**: the client has no such feature, or it fails with Apache Kafka 3.9.2 as well. The reasons are below.

The cases are in `tests/clients/cases`, the drivers in `tests/clients/drivers`. `tests/conformance` compares single
requests in every version of every API. Results of the clients' own test suites: [client-suites.md](client-suites.md).
"""


def report_text(clients: Sequence[Results], versions: Mapping[str, Versions]) -> str:
    """`versions` by server."""
    head = HEAD.format(date=today(), commit=commit(), **machine())
    return "\n".join([head, *report_sections(clients), *version_section(versions)])


def report_sections(clients: Sequence[Results]) -> list[str]:
    tried = [each for each in clients if not each["unavailable"]]
    missing = {_title(each): each["unavailable"] for each in clients if each["unavailable"]} | NOT_TRIED
    return [
        _summary(tried),
        "## Not tried\n",
        *(f"* {name}: {why}" for name, why in missing.items()),
        "",
        *_failures(tried),
        *_details(tried),
        *_inapplicable(tried),
    ]


def version_section(by_server: Mapping[str, Versions]) -> list[str]:
    """For each API, the versions in each server's ApiVersions response."""
    if not by_server:
        return []
    names = dict.fromkeys(name for versions in by_server.values() for name in versions)
    rows = ([name, *(_range(versions.get(name)) for versions in by_server.values())] for name in names)
    return [
        "## Versions of the APIs\n\nAs running servers answer ApiVersions on the port for clients.\n",
        *table(["API", *by_server], rows),
        "",
    ]


def as_results(client: str, version: str, language: str, verdicts: Iterable[Verdict]) -> Results:
    head = {"client": client, "version": version, "language": language, "unavailable": None}
    return {**head, "verdicts": [verdict.to_json() for verdict in verdicts]}


def unavailable(client: str, version: str, language: str, why: str) -> Results:
    head = {"client": client, "version": version, "language": language}
    return {**head, "unavailable": why, "verdicts": []}


def _summary(clients: Sequence[Results]) -> str:
    features = dict.fromkeys(each["feature"] for client in clients for each in client["verdicts"])
    rows = []
    for client in clients:
        cells = [_count(client["verdicts"], feature) for feature in features]
        rows.append([_title(client), *cells])
    return "\n".join(["## Clients and features\n", *table(["client", *features], rows), ""])


def _count(verdicts: Sequence[dict[str, Any]], feature: str) -> str:
    """The number of passed cases, of those that apply."""
    results = Counter(each["result"] for each in verdicts if each["feature"] == feature)
    applicable = results[PASS] + results[FAIL]
    if not applicable:
        return SIGNS[NOT_APPLICABLE]
    return f"{SIGNS[FAIL if results[FAIL] else PASS]} {results[PASS]}/{applicable}"


def _details(clients: Sequence[Results]) -> list[str]:
    """A table for each feature, with the names of the clients that do not pass."""
    lines = ["## Case by case\n"]
    cases: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for client in clients:
        for each in client["verdicts"]:
            outcomes = cases.setdefault(each["feature"], {}).setdefault(each["title"], [])
            outcomes.append((_title(client), each["result"]))
    for feature, by_case in cases.items():
        rows = [[title, *_sorted_by_result(outcomes)] for title, outcomes in by_case.items()]
        lines += [f"### {_capitalized(feature)}\n", *table(("case", "pass", "fail", "n/a"), rows), ""]
    return lines


def _sorted_by_result(outcomes: Sequence[tuple[str, str]]) -> list[str]:
    """The number of passes, and the names of clients that fail, or to which the case does not apply."""
    by_result = {result: [client for client, each in outcomes if each == result] for result in SIGNS}
    failed, other = ", ".join(by_result[FAIL]), ", ".join(by_result[NOT_APPLICABLE])
    return [f"{len(by_result[PASS])} of {len(outcomes)}", failed, other]


def _failures(clients: Sequence[Results]) -> list[str]:
    """Failures by cause: a line for the cause, then one for each client."""
    met: dict[str, dict[str, list[str]]] = {}
    for client in clients:
        for each in client["verdicts"]:
            if each["result"] == FAIL:
                cases = met.setdefault(_short(each["cause"]), {}).setdefault(_title(client), [])
                cases.append(f"{each['feature']}: {each['title']}")
    lines = []
    for cause, by_client in met.items():
        lines += [f"* {cause}", *(f"    * {client}: {_named(cases)}" for client, cases in by_client.items())]
    return ["## Failures\n", *(lines or ["none"]), ""]


def _inapplicable(clients: Sequence[Results]) -> list[str]:
    rows = []
    for client in clients:
        reasons: dict[tuple[str, str], list[str]] = {}
        for each in client["verdicts"]:
            if each["result"] == NOT_APPLICABLE:
                reasons.setdefault((_short(each["cause"]), each["feature"]), []).append(each["title"])
        rows += [
            [_title(client), f"{feature}: {_named(titles)}", reason] for (reason, feature), titles in reasons.items()
        ]
    return ["## Not applicable\n", *table(("client", "what", "why"), rows), ""]


def _named(cases: Sequence[str]) -> str:
    """The first name, and the number of the others: *Case by case* has their names."""
    more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
    return f"{cases[0]}{more}"


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def _short(cause: str) -> str:
    return cause if len(cause) <= CAUSE_LENGTH else f"{cause[:CAUSE_LENGTH]}…"


def _title(results: Results) -> str:
    return f"{results['client']} {results['version']}"


def _range(versions: list[int] | None) -> str:
    return "n/a" if versions is None else f"{versions[0]} to {versions[1]}"
