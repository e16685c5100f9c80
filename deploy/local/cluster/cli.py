"""``kafka-gateway cluster``: the topologies of deploy/topology as processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.local.cluster.cluster import LocalCluster, resident_mb
from deploy.local.jars import ResolveError
from deploy.local.java import MissingToolError
from deploy.local.process import StartError
from deploy.topology.description import TopologyError, load, names
from deploy.topology.setup import SetupError

FAILURES = (MissingToolError, ResolveError, SetupError, StartError, TopologyError)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Whole topologies of several regions as processes of this machine."
)
Name = Annotated[str, typer.Argument(metavar="TOPOLOGY", help=f"One of {', '.join(names())}.")]
Data = Annotated[Path, typer.Option(help="Where they keep their data between runs.")]
DATA = Path("data/cluster")


@app.command()
def up(topology: Name, data: Data = DATA) -> None:
    """Start those processes of a topology that are not running, and leave them running."""
    with _complaining():
        cluster = _open(topology, data)
        cluster.up(lambda text: typer.echo(f"starting {text}"))
        typer.echo(f"Ready: Kafka bootstrap {cluster.places.bootstrap()}")


@app.command()
def down(
    topology: Name, data: Data = DATA, delete: Annotated[bool, typer.Option("--delete", help="The data too.")] = False
) -> None:
    """Stop a topology."""
    with _complaining():
        cluster = _open(topology, data)
        if delete:
            cluster.delete()
        else:
            cluster.down()


@app.command()
def kill(
    topology: Name,
    target: Annotated[str, typer.Argument(help="A node, or a region: then all that runs in it.")],
    data: Data = DATA,
) -> None:
    """Kill processes (SIGKILL). `up` starts them again."""
    with _complaining():
        _open(topology, data).kill(target)


@app.command()
def status(topology: Name, data: Data = DATA) -> None:
    """Show which processes run, and their addresses."""
    with _complaining():
        cluster = _open(topology, data)
        table = Table("NODE", "CLUSTER", "ADDRESS", "PID", "MB", box=None)
        for state in cluster.states():
            memory = None if state.pid is None else resident_mb(state.pid)
            row = [state.node.name, state.node.cluster, state.address]
            table.add_row(*row, str(state.pid or "-"), str(memory or "-"))
        Console().print(table)
        for name in cluster.topology.clusters:
            typer.echo(f"Pulsar {name}: {cluster.places.service_url(name)} {cluster.places.admin_url(name)}")
        typer.echo(f"Kafka bootstrap: {cluster.places.bootstrap()}")


def _open(name: str, data: Path) -> LocalCluster:
    return LocalCluster(load(name), data / name)


@contextmanager
def _complaining() -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        typer.echo(f"kafka-gateway: {error}", err=True)
        raise typer.Exit(1) from error
