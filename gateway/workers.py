"""Several gateways on one machine, one for each core: a process each, restarted when it ends, and drained together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel

import deploy.local
from gateway.backoff import Backoff
from gateway.config.gateway_config import Config
from gateway.config.listeners import ListenerSection

PAUSE_FIRST_S = 1.0
PAUSE_LONGEST_S = 10.0
HEALTHY_S = 60.0
"""After a worker has run for this time, its next pause is the first again."""
DRAIN_S = 30.0
_EXEC_BOUND = Path(deploy.local.__path__[0]) / "exec_bound.py"

log = structlog.get_logger()


def worker_config(config: Config, number: int) -> Config:
    """The worker's number is added to every port and to the node id, if it is set. Port 0, for any free port, stays 0.

    The advertised port of a listener with a single address does not change.
    """
    kafka = _raised(_listener(config.kafka, number), number, "node_id")
    kafka = kafka.model_copy(update={"listeners": tuple(_listener(each, number) for each in config.kafka.listeners)})
    fleet = config.fleet
    if fleet.forwarding is not None:
        forwarding = _raised(fleet.forwarding, number, "port", "advertised_port")
        fleet = fleet.model_copy(update={"forwarding": forwarding})
    return config.model_copy(update={"kafka": kafka, "fleet": fleet, "http": _raised(config.http, number, "port")})


def _listener(listener: ListenerSection, number: int) -> Any:
    advertised = () if listener.single_address else ("advertised_port",)
    return _raised(listener, number, "port", *advertised)


def _raised(section: Any, number: int, *fields: str) -> Any:
    assert isinstance(section, BaseModel)
    values = {field: getattr(section, field) for field in fields}
    fixed = {field: value for field, value in values.items() if value or (field == "node_id" and value is not None)}
    return section.model_copy(update={field: value + number for field, value in fixed.items()})


async def supervise(commands: Sequence[Sequence[str]], stop: asyncio.Event) -> None:
    """Run a worker for each command until `stop` is set; then drain them."""
    workers = [asyncio.create_task(_keep_running(number, command)) for number, command in enumerate(commands)]
    await stop.wait()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def _keep_running(number: int, command: Sequence[str]) -> None:
    backoff = Backoff(PAUSE_FIRST_S, PAUSE_LONGEST_S)
    while True:
        started = time.monotonic()
        try:
            outcome: dict[str, object] = {"exit_code": await _run(command)}
        except OSError as error:  # for example, the machine has no memory for a process at the moment
            outcome = {"error": str(error)}
        if time.monotonic() - started > HEALTHY_S:
            backoff.reset()
        pause_s = backoff.next_pause_s()
        log.warning("worker ended: it is started again", worker=number, pause_s=pause_s, **outcome)
        await asyncio.sleep(pause_s)


async def _run(command: Sequence[str]) -> int:
    """The exit code. When it is cancelled, it ends the process first: with SIGTERM, and SIGKILL after DRAIN_S."""
    # The kernel kills a worker when its supervisor has ended.
    bound = [sys.executable, str(_EXEC_BOUND), str(os.getpid()), *command]
    process = await asyncio.create_subprocess_exec(*bound, start_new_session=True)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), DRAIN_S)
        except TimeoutError:
            log.warning("worker does not drain: it is killed", pid=process.pid)
            process.kill()
            await process.wait()
        raise
