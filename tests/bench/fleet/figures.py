"""What a run measured, as tables of markdown."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.report import machine

MARK = "<!-- The rest is written by `python -m tests.bench.fleet`. -->"


class Figures:
    """Rows under titles, in the order in which they were measured."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, tuple[str, ...]], list[Sequence[str]]] = {}

    def add(self, title: str, headings: Sequence[str], row: Sequence[object]) -> None:
        cells = [_text(value) for value in row]
        self._tables.setdefault((title, tuple(headings)), []).append(cells)
        print(f"  {title}: {', '.join(cells)}", flush=True)

    def markdown(self, duration_s: float) -> str:
        facts = machine()
        lines = [
            f"{datetime.now(UTC):%Y-%m-%d}, {facts['cores']} cores, {facts['system']}, Python {facts['python']}; "
            f"{duration_s / 60:.0f} minutes, load average at the end {facts['load_average'][0]}.", "",
        ]  # fmt: skip
        for (title, headings), rows in self._tables.items():
            alignment = ["---", *["--:"] * (len(headings) - 1)]
            lines += [f"### {title}", ""]
            lines += ["| " + " | ".join(cells) + " |" for cells in (headings, alignment, *rows)] + [""]
        return "\n".join(lines).rstrip() + "\n"

    def update(self, path: Path, text: str) -> None:
        """Replace what follows the mark."""
        before, _, _ = path.read_text().partition(MARK)
        path.write_text(before + MARK + "\n\n" + text)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
