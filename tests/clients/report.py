"""docs/compatibility.md: made from the newest results of every client that was run on this machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.clients.api_versions import Versions
from tests.clients.clients import REPOSITORY
from tests.clients.findings import NOT_TRIED, cause_of
from tests.clients.verdict import FAIL, NOT_APPLICABLE, PASS, Outcome, Verdict

RESULTS_DIR = REPOSITORY / "build" / "clients" / "results"
VERSIONS_FILE = "api-versions.json"
REPORT = REPOSITORY / "docs" / "compatibility.md"
SIGNS = {PASS: "pass", FAIL: "**fail**", NOT_APPLICABLE: "n/a"}

CAUSE_LENGTH = 160

Results = dict[str, Any]
"""Of one client: name, version, language, date, and its verdicts or why it is not available."""

HEAD = """\
# Compatibility

Written by `make conformance`: public client libraries do the same with Apache Kafka 3.9.2 and with the gateway on
Pulsar 4.0.7, and what they report is compared: offsets, records, errors by name. Another client, librdkafka, checks
what they wrote and writes what they read.

* **pass**: the same on both, and as expected. **fail**: not so; the cause is below.
* **n/a**: the client has no such feature, or fails with Apache Kafka 3.9.2 as well; the reason is below too.

The cases are in `tests/clients/cases`, the clients' drivers in `tests/clients/drivers`. The same requests in every
version of every API, byte by byte, are compared by `tests/conformance`. What came of clients' own test suites is in
[client-suites.md](client-suites.md).
"""


def save_results(results: Results) -> None:
    """The newest verdict on each case counts."""
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    path = RESULTS_DIR / f"{results['client']} {results['version']}.json".replace("/", "-")
    if path.exists() and not results["unavailable"]:
        newest = {(each["feature"], each["case"]): each for each in _read(path)["verdicts"] + results["verdicts"]}
        results = {**results, "verdicts": list(newest.values())}
    path.write_text(json.dumps(results, indent=1))


def save_versions(by_server: dict[str, Versions]) -> None:
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    (RESULTS_DIR / VERSIONS_FILE).write_text(json.dumps(by_server, indent=1))


def write_report(order: Sequence[str]) -> None:
    """`order` has the clients' titles as columns are to be; those without results are left out."""
    found = {_title(each): each for each in map(_read, sorted(RESULTS_DIR.glob("* *.json")))}
    clients = [_judged(found[title]) for title in order if title in found]
    versions = RESULTS_DIR / VERSIONS_FILE
    parts = [HEAD, *report_sections(clients), *version_section(_read(versions) if versions.exists() else {})]
    REPORT.write_text("\n".join(parts))


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


def version_section(by_server: dict[str, Versions]) -> list[str]:
    """API by API, what each server's ApiVersions answer says."""
    if not by_server:
        return []
    names = dict.fromkeys(name for versions in by_server.values() for name in versions)
    rows = ([name, *(_range(versions.get(name)) for versions in by_server.values())] for name in names)
    return [
        "## Versions of the APIs\n\nAs running servers answer ApiVersions on the port for clients.\n",
        *_table(["API", *by_server], rows),
        "",
    ]


def as_results(client: str, version: str, language: str, date: str, verdicts: Iterable[Verdict]) -> Results:
    head = {"client": client, "version": version, "language": language, "date": date, "unavailable": None}
    return {**head, "verdicts": [verdict.to_json() for verdict in verdicts]}


def unavailable(client: str, version: str, language: str, date: str, why: str) -> Results:
    head = {"client": client, "version": version, "language": language, "date": date}
    return {**head, "unavailable": why, "verdicts": []}


def _judged(results: Results) -> Results:
    """With results and causes as they are judged and worded now."""
    verdicts = [
        Verdict(each["case"], each["feature"], each["title"], Outcome(**each["kafka"]), Outcome(**each["gateway"]))
        for each in results["verdicts"]
    ]
    return {**results, "verdicts": [verdict.to_json() for verdict in verdicts]}


def _summary(clients: Sequence[Results]) -> str:
    features = dict.fromkeys(each["feature"] for client in clients for each in client["verdicts"])
    rows = []
    for client in clients:
        cells = [_count(client["verdicts"], feature) for feature in features]
        rows.append([f"{client['client']} {client['version']}", *cells, client["date"]])
    return "\n".join(["## Clients and features\n", *_table(["client", *features, "run on"], rows), ""])


def _count(verdicts: Sequence[dict[str, Any]], feature: str) -> str:
    """Passed of those that apply."""
    results = Counter(each["result"] for each in verdicts if each["feature"] == feature)
    applicable = results[PASS] + results[FAIL]
    if not applicable:
        return SIGNS[NOT_APPLICABLE]
    return f"{SIGNS[FAIL if results[FAIL] else PASS]} {results[PASS]}/{applicable}"


def _details(clients: Sequence[Results]) -> list[str]:
    lines = ["## Case by case\n"]
    by_client = [{(each["feature"], each["case"]): each for each in client["verdicts"]} for client in clients]
    cases = dict.fromkeys(key for verdicts in by_client for key in verdicts)
    rows = []
    for key in cases:
        found = [verdicts.get(key) for verdicts in by_client]
        title = next(each["title"] for each in found if each)
        rows.append([f"{key[0]}: {title}", *(SIGNS[each["result"]] if each else "" for each in found)])
    return [*lines, *_table(["case", *map(_title, clients)], rows), ""]


def _failures(clients: Sequence[Results]) -> list[str]:
    """By cause, so that one that many clients meet is told once."""
    met: dict[str, list[str]] = {}
    for client in clients:
        for each in client["verdicts"]:
            if each["result"] == FAIL:
                known = cause_of(client["client"], each["feature"], each["case"])
                met.setdefault(known or _short(each["cause"]), []).append(
                    f"{_title(client)}, {each['feature']}: {each['title']}"
                )
    lines = [f"* {cause} ({'; '.join(cases)})" for cause, cases in met.items()]
    return ["## Failures\n", *(lines or ["none"]), ""]


def _inapplicable(clients: Sequence[Results]) -> list[str]:
    lines = ["## Not applicable\n"]
    for client in clients:
        reasons: dict[str, list[str]] = {}
        for each in client["verdicts"]:
            if each["result"] == NOT_APPLICABLE:
                reasons.setdefault(_short(each["cause"]), []).append(f"{each['feature']}: {each['title']}")
        lines += [f"* {_title(client)}: {reason} ({'; '.join(cases)})" for reason, cases in reasons.items()]
    return [*lines, ""]


def _short(cause: str) -> str:
    return cause if len(cause) <= CAUSE_LENGTH else f"{cause[:CAUSE_LENGTH]}…"


def _title(results: Results) -> str:
    return f"{results['client']} {results['version']}"


def _range(versions: list[int] | None) -> str:
    return "n/a" if versions is None else f"{versions[0]} to {versions[1]}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _read(path: Path) -> Any:
    return json.loads(path.read_text())
