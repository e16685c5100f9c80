"""A Pulsar and three gateways. Two gateways are restarted in turns; the third one runs all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.support.gateway_process import GatewayProcess

GATEWAY_EVERY_S = 300.0
PULSAR_EVERY_S = 1_200.0
READY_S = 300.0
"""Pulsar needed 75 s to restart on a machine with a load of ten times its cores."""
HEAP_MB = 1_024


class Servers:
    def __init__(self, folder: Path) -> None:
        self.pulsar = PulsarStandalone(folder / "pulsar", heap_mb=HEAP_MB)
        self.pulsar.start()
        self.pulsar.wait_ready()
        self.gateways = [
            GatewayProcess(folder / f"gateway{number}", self.pulsar.service_url, self.pulsar.admin_url)
            for number in range(3)
        ]
        for gateway in self.gateways:
            gateway.start()
            gateway.wait_ready()

    @property
    def veteran(self) -> GatewayProcess:
        return self.gateways[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(gateway.bootstrap for gateway in self.gateways)

    def stop(self) -> None:
        for gateway in self.gateways:
            gateway.stop()
        self.pulsar.kill()


class Faults:
    """Restarts at fixed times. Every second one is a SIGKILL."""

    def __init__(self, servers: Servers, gateway_every_s: float, pulsar_every_s: float) -> None:
        self.gateway_restarts = self.pulsar_restarts = 0
        self.failure: Exception | None = None
        """Why there are no more restarts. Servers that its thread started have ended with it (see `ChildProcess`)."""
        self._servers = servers
        self._every = gateway_every_s, pulsar_every_s
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            if self.failure is not None:
                raise self.failure

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """No restart is going on, or begins, in this time. The servers go on."""
        with self._turn:
            yield

    def _run(self) -> None:
        start = time.monotonic()
        try:
            while not self._stop.wait(1.0):
                with self._turn:
                    self._restart_next(time.monotonic() - start)
        except Exception as error:
            self.failure = error

    def _restart_next(self, passed_s: float) -> None:
        gateway_every_s, pulsar_every_s = self._every
        if passed_s > pulsar_every_s * (self.pulsar_restarts + 1):
            self._restart_pulsar()
        elif passed_s > gateway_every_s * (self.gateway_restarts + 1):
            self._restart_gateway()

    def _restart_gateway(self) -> None:
        gateway = self._servers.gateways[1 + self.gateway_restarts % 2]
        if self.gateway_restarts // 2 % 2:
            gateway.kill()
        else:
            gateway.stop()
        self.gateway_restarts += 1
        gateway.start()
        gateway.wait_ready(READY_S)

    def _restart_pulsar(self) -> None:
        if self.pulsar_restarts % 2:
            self._servers.pulsar.kill()
        else:
            self._servers.pulsar.stop()
        self.pulsar_restarts += 1
        self._servers.pulsar.start()
        self._servers.pulsar.wait_ready(READY_S)
