"""A gateway as a user runs it: `kafka-gateway serve --config FILE` in a process of its own, on free ports."""

import http.client
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from deploy.local.process import ChildProcess, free_port
from tests.support.preloaded import ForkedGateway

HOST = "127.0.0.1"
READY_TIMEOUT_S = 90.0
"""On a machine with a load of fifteen times its cores, Pulsar needs half of this to load the groups' topic."""
PROBE_TIMEOUT_S = 5.0
REPOSITORY = Path(__file__).parents[2]

Sections = Mapping[str, Mapping[str, Any]]


class GatewayProcess:
    """`overrides` are TOML sections ({"limits": {"max_connections": 10}}) that override the defaults of tests.

    Stopped or killed, it can be started again with the same address and configuration.
    """

    is_forked = False
    """Fork it from a process that has imported its code, which is quicker."""

    def __init__(
        self, work_dir: Path, service_url: str, admin_url: str, overrides: Sections | None = None, *, workers: int = 1
    ) -> None:
        self.work_dir = work_dir
        self.prefix: list[str] = []
        """The beginning of its command, to run it in another environment."""
        self.sources = REPOSITORY
        """The directory of its code."""
        self.constants: dict[str, float] = {}
        """Constants of its code that are not as usual, by their full names: tests need not wait as long as operators.
        Only a forked gateway can have them."""
        self._workers = workers
        self.config = _merge(
            {
                "kafka": {"host": HOST, "port": free_port()},
                "pulsar": {"service_url": service_url, "admin_url": admin_url},
                "http": {"host": HOST, "port": free_port()},
                "groups": {"initial_rebalance_delay_ms": 0},  # as in the reference: see deploy.local.kafka
            },
            overrides or {},
        )
        self._process = ChildProcess("the gateway", work_dir / "gateway.log")

    @property
    def bootstrap(self) -> str:
        return f"{self.config['kafka']['host']}:{self.config['kafka']['port']}"

    @property
    def http_address(self) -> str:
        """host:port of /metrics, /healthz and /readyz."""
        return f"{self.config['http']['host']}:{self.config['http']['port']}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def log_path(self) -> Path:
        return self._process.log_path

    def start(self) -> None:
        self.work_dir.mkdir(parents=True, exist_ok=True)
        file = self.work_dir / "gateway.toml"
        file.write_text(tomli_w.dumps(self.config))
        arguments = ["serve", "--config", str(file)]
        if self.is_forked and not self.prefix and self.sources == REPOSITORY and self._workers == 1:
            self._process.start_by(partial(ForkedGateway, arguments, constants=self.constants))
            return
        assert not self.constants, "the gateway is not forked"
        arguments += ["--workers", str(self._workers)] if self._workers > 1 else []
        command = [*self.prefix, sys.executable, "-P", "-m", "gateway.cli", *arguments]
        self._process.start(command, env={"PYTHONPATH": str(self.sources)})

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Raises StartError with the end of the log."""
        self._process.wait_until(lambda: self.get("/readyz")[0] == 200, timeout_s)

    def get(self, path: str, timeout_s: float = PROBE_TIMEOUT_S) -> tuple[int, str]:
        """Status and body of an HTTP endpoint; status 0 when there is no answer."""
        connection = http.client.HTTPConnection(self.http_address, timeout=timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def log_tail(self) -> str:
        return self._process.log_tail()


def _merge(base: Sections, overrides: Sections) -> dict[str, dict[str, Any]]:
    return {name: {**base.get(name, {}), **overrides.get(name, {})} for name in {**base, **overrides}}
