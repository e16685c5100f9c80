"""A gateway ends when it cannot work any more, also while it is starting. It loads only what it needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from gateway import cli
from gateway.background import BackgroundFailure
from gateway.config.gateway_config import Config
from gateway.fleet.fleet import NodeIdInUse


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_an_impossible_port_is_named_before_pulsar_is_started(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setattr("gateway.development.develop", None)  # nothing is started, even if the test fails
    outcome = CliRunner().invoke(cli.app, ["dev", option, "70000"])
    assert outcome.exit_code == 2
    assert f"Invalid value for '{option}'" in outcome.output


class FakeGateway:
    """Waits for Pulsar, and fails in the meantime."""

    end: Callable[[FakeGateway], None]
    stopped: asyncio.Event

    def __init__(self, config: Config) -> None:
        loop = asyncio.get_running_loop()
        self.node_id_in_use: asyncio.Future[NodeIdInUse] = loop.create_future()
        self.failed: asyncio.Future[BackgroundFailure] = loop.create_future()

    async def start(self) -> None:
        FakeGateway.end(self)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        FakeGateway.stopped.set()


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (BackgroundFailure, lambda gateway: gateway.failed.set_result(BackgroundFailure("it keeps failing"))),
        (NodeIdInUse, lambda gateway: gateway.node_id_in_use.set_result(NodeIdInUse("another has it"))),
    ],
)
async def test_a_gateway_that_fails_while_it_starts_ends(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], end: Callable[[FakeGateway], None]
) -> None:
    monkeypatch.setattr(cli, "Gateway", FakeGateway)
    monkeypatch.setattr(FakeGateway, "end", staticmethod(end), raising=False)
    monkeypatch.setattr(FakeGateway, "stopped", asyncio.Event(), raising=False)
    with pytest.raises(error):
        async with asyncio.timeout(5):
            await cli._serve_until_signal(Config(), None)
    assert FakeGateway.stopped.is_set()


def test_what_only_some_gateways_need_is_not_loaded() -> None:
    code = "import sys, gateway.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "uvloop" in loaded
    assert not {"cryptography", "jwt", "kafka", "re2"} & {*loaded}
