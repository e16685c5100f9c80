"""What a run measured, as docs/reports/fleet.md."""

from collections.abc import Sequence

from tests.support.report import head, table


class Figures:
    """Rows under titles, in the order in which they were measured."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, tuple[str, ...]], list[Sequence[str]]] = {}

    def add(self, title: str, headings: Sequence[str], row: Sequence[object]) -> None:
        cells = [_text(value) for value in row]
        self._tables.setdefault((title, tuple(headings)), []).append(cells)
        print(f"  {title}: {', '.join(cells)}", flush=True)

    def markdown(self, duration_s: float) -> str:
        lines = [head("Fleet", "make fleet", duration_s, HOW_TO_READ)]
        for (title, headings), rows in self._tables.items():
            lines += [f"## {title}", "", *table(headings, rows, texts=1), ""]
        return "\n".join(lines).rstrip() + "\n"


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


HOW_TO_READ = """\
What happens when one of three gateways dies, and what a fleet costs. Pulsar, all gateways and the load run on one
machine. CPU is the processor time of the gateways alone; it depends less on other programs than times and rates do.
How to size a fleet with these figures: [guides/deploy.md](../guides/deploy.md#how-many-gateways).

* **network cable pulled**: the gateway runs in a network namespace whose link is taken down.
* **by a single address**: the request reaches a gateway that does not lead the partition, which forwards it.
* **partitions of the busiest, of the mean**: partitions of the busiest gateway, divided by the mean.
"""
