"""The table of consumer groups as a terminal shows it."""

from io import StringIO

from kafka import TopicPartition
from rich.console import Console

from gateway.group_table import GroupRow, render


def shown(*rows: GroupRow, backlogs: bool = True) -> list[list[str]]:
    """The words of each line below the header."""
    console = Console(file=StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(render(rows, backlogs=backlogs))
    assert isinstance(console.file, StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    return lines[3 : 3 + len(rows)]


def test_each_group_is_named_once() -> None:
    first = GroupRow("billing", "Stable", 2, TopicPartition("orders", 0), 12, 30, 2)
    second = first._replace(partition=TopicPartition("orders", 1), committed=31, backlog=None)
    idle = GroupRow("idle", "Empty", 0)
    assert shown(first, second, idle) == [
        ["billing", "Stable", "2", "orders", "0", "12", "30", "18", "2"],
        ["orders", "1", "31", "30", "0", "-"],
        ["idle", "Empty", "0", "-", "-", "-", "-", "-", "-"],
    ]
    assert shown(first, backlogs=False) == [["billing", "Stable", "2", "orders", "0", "12", "30", "18"]]


def test_names_are_text_and_nothing_else() -> None:
    assert shown(GroupRow("[bold]a[/nope]", "Empty", None))[0][0] == "[bold]a[/nope]"
    assert shown(GroupRow("a\x1b[31m\nb", "Empty", None))[0][0] == "a\\x1b[31m\\nb"
