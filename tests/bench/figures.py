"""The results of a run, as a report."""

from collections.abc import Sequence

from tests.support.report import head, table


class Figures:
    """Rows under titles, in the order of measuring."""

    def __init__(self, title: str, command: str, how_to_read: str) -> None:
        self._head = (title, command, how_to_read)
        self._tables: dict[tuple[str, tuple[str, ...]], list[Sequence[str]]] = {}

    def add(self, title: str, headings: Sequence[str], row: Sequence[object]) -> None:
        cells = [_text(value) for value in row]
        self._tables.setdefault((title, tuple(headings)), []).append(cells)
        print(f"  {title}: {', '.join(cells)}", flush=True)

    def number(self, title: str, row: str, heading: str) -> float:
        """What was added before: the cell under `heading` in the row that begins with `row`."""
        for (name, headings), rows in self._tables.items():
            found = [cells[headings.index(heading)] for cells in rows if name == title and cells[0] == row]
            if found:
                return float(found[0].replace(",", ""))
        raise KeyError(title, row, heading)

    def markdown(self, duration_s: float) -> str:
        title, command, how_to_read = self._head
        lines = [head(title, command, duration_s, how_to_read)]
        for (name, headings), rows in self._tables.items():
            lines += [f"## {name}", "", *table(headings, rows, texts=1), ""]
        return "\n".join(lines).rstrip() + "\n"


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
