"""The command line: ``kafka-gateway serve`` uses an existing Pulsar, ``kafka-gateway dev`` starts its own.

Each of the other commands imports what it needs: ``serve`` would keep that in memory.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from gateway.app import Gateway
from gateway.background import BackgroundFailure
from gateway.config.gateway_config import Config, ConfigError, load
from gateway.fleet.fleet import NodeIdInUse
from gateway.login.token_types import InvalidKey
from gateway.namespace import UnsupportedCluster
from gateway.observability import logs
from gateway.pulsar.errors import PulsarError
from gateway.security.pulsar_authorizer import InvalidAuthorizer
from gateway.transport.certificates import InvalidCertificate
from gateway.workers import supervise, worker_config

PIPED_COLUMNS = 200
MAX_PORT = 65_535
CONFIGURATION_ERRORS = (UnsupportedCluster, InvalidAuthorizer, InvalidCertificate, InvalidKey)
"""Errors after which the user has to change the configuration, or Pulsar."""

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Kafka protocol gateway in front of Apache Pulsar.")


@app.command()
def serve(
    config: Annotated[Path, typer.Option(help="TOML file; see docs/guides/configure.md.")],
    workers: Annotated[
        int, typer.Option(min=1, help="Gateway processes on this machine, each with ports one higher than the last.")
    ] = 1,
    worker: Annotated[int | None, typer.Option(hidden=True, help="Run as the worker of this number.")] = None,
) -> None:
    """Serve Kafka clients from a Pulsar that already runs."""
    try:
        settings = load(config)
    except ConfigError as error:
        raise typer.Exit(_complain(str(error))) from error
    logs.configure(settings.log_level)
    if workers > 1:
        own = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config), "--worker"]
        uvloop.run(_supervise_until_signal([[*own, str(number)] for number in range(workers)]))
    else:
        _run(settings if worker is None else worker_config(settings, worker))


@app.command()
def dev(
    data: Annotated[Path, typer.Option(help="Pulsar's data directory, kept between runs.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address of the Kafka listener.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port of the Kafka listener.")] = 9092,
    http_port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port of metrics and health.")] = 9464,
    secure: Annotated[bool, typer.Option(help="Use TLS, tokens and ACLs, and write client configurations.")] = False,
) -> None:
    """Start a Pulsar standalone and a gateway on it; Ctrl-C stops both."""
    from gateway.development import CannotStart, develop

    logs.configure("warning")
    sections: dict[str, dict[str, Any]] = {"kafka": {"host": host, "port": port}, "http": {"port": http_port}}
    try:
        develop(data, sections, secure=secure, serve=_run)
    except CannotStart as error:
        raise typer.Exit(_complain(str(error))) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def haproxy(
    gateway: Annotated[list[str], typer.Argument(help="host:port:http_port of each gateway, in order.")],
    bind_host: Annotated[str, typer.Option(help="Address on which haproxy listens.")] = "0.0.0.0",
    bootstrap_port: Annotated[
        int, typer.Option(min=1, max=MAX_PORT, help="Bootstrap port; the gateways' ports follow it.")
    ] = 9092,
    single_address: Annotated[bool, typer.Option(help="One port for all gateways, which forward requests.")] = False,
) -> None:
    """Print haproxy's configuration for a fleet; see docs/guides/deploy.md for what the gateways need."""
    from deploy.haproxy.config import Backend, haproxy_config, single_address_config

    try:
        backends = [Backend(*_address(text)) for text in gateway]
    except ValueError:
        raise typer.Exit(_complain("a gateway is host:port:http_port, such as 10.0.0.1:9092:9464")) from None
    write = single_address_config if single_address else haproxy_config
    typer.echo(write(backends, bind_host, bootstrap_port), nl=False)


def _address(text: str) -> tuple[str, int, int]:
    host, port, http_port = text.rsplit(":", 2)
    return host, int(port), int(http_port)


@app.command()
def groups(
    group: Annotated[str | None, typer.Argument(help="Only this group.")] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="host:port of a gateway; by default the configured one.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The gateway's TOML file; without it, the backlogs in Pulsar are not shown.")
    ] = None,
    command_config: Annotated[
        Path | None, typer.Option(help="Client properties for the login, with PEM files.")
    ] = None,
) -> None:
    """Show consumer groups: members, committed offsets, lag, and the backlogs of their subscriptions in Pulsar."""
    from rich.console import Console

    from gateway.client_properties import InvalidProperties, read_client_properties
    from gateway.group_table import KafkaUnreachable, read_groups, render, with_backlogs

    logs.configure("error")
    try:
        settings = Config() if config is None else load(config)
        client = {} if command_config is None else read_client_properties(command_config)
        rows = read_groups(bootstrap or settings.kafka.advertised, group, client)
        if config is not None:
            rows = asyncio.run(with_backlogs(rows, settings.pulsar))
    except (ConfigError, KafkaUnreachable, PulsarError, InvalidProperties) as error:
        raise typer.Exit(_complain(str(error))) from error
    if group is not None and not rows:
        raise typer.Exit(_complain(f"there is no group {group}"))
    Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS).print(render(rows, backlogs=config is not None))


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
def cluster(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Whole topologies of several regions as processes of this machine."""
    from deploy.local.cluster.cli import app as cluster_app

    cluster_app(arguments or [], prog_name="kafka-gateway cluster")


def _run(config: Config, ready: str | None = None) -> None:
    try:
        uvloop.run(_serve_until_signal(config, ready))
    except (*CONFIGURATION_ERRORS, NodeIdInUse, BackgroundFailure, PulsarError, OSError) as error:
        raise typer.Exit(_complain(str(error))) from error


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _supervise_until_signal(commands: list[list[str]]) -> None:
    await supervise(commands, _stop_signal())


async def _serve_until_signal(config: Config, ready: str | None) -> None:
    stop = _stop_signal()
    gateway = Gateway(config)
    starting = asyncio.ensure_future(gateway.start())
    stopping = asyncio.ensure_future(stop.wait())
    ends: set[asyncio.Future[Any]] = {stopping, gateway.node_id_in_use, gateway.failed}
    try:
        await asyncio.wait({starting, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if ready:
                typer.echo(ready)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in (gateway.node_id_in_use, gateway.failed):
            if end.done():
                raise end.result()
    finally:
        starting.cancel()
        stopping.cancel()
        await gateway.stop()


def _complain(text: str) -> int:
    """Print the last line, unless nobody reads the lines before it: then the process could not end."""
    if logs.flush():
        typer.echo(f"kafka-gateway: {text}", err=True)
    return 1


def main() -> None:
    app()


if __name__ == "__main__":
    main()
