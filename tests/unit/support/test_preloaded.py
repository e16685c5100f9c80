"""Gateways forked from a process that has imported their code. Pulsar is not there."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.preloaded import ForkedGateway

WAIT_S = 60.0
STARTS_ONE = """
import sys, time
from pathlib import Path
from tests.support.gateway_process import GatewayProcess

if __name__ == "__main__":
    GatewayProcess.is_forked = True
    gateway = GatewayProcess(Path(sys.argv[1]), "pulsar://127.0.0.1:1", "http://127.0.0.1:1")
    gateway.start()
    print(gateway.pid, flush=True)
    time.sleep(600)
"""


def test_arguments_exit_code_and_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gateway = ForkedGateway(["serve", "--config", str(tmp_path / "absent.toml")], log)
    assert gateway.wait(WAIT_S) != 0
    assert gateway.poll() == gateway.wait()
    assert "absent.toml" in log.read_text()


def test_stop_and_start_again(tmp_path: Path) -> None:
    assert GatewayProcess.is_forked
    gateway = GatewayProcess(tmp_path, "pulsar://127.0.0.1:1", "http://127.0.0.1:1")
    for end in (gateway.stop, gateway.kill):
        gateway.start()
        while gateway.get("/healthz")[0] != 200:
            assert gateway.running
            time.sleep(0.02)
        pidfd = os.pidfd_open(gateway.pid)
        end()
        assert not gateway.running
        assert select.select([pidfd], [], [], 0)[0]
        os.close(pidfd)


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = tmp_path / "starts_one.py"
    program.write_text(STARTS_ONE)
    command = [sys.executable, str(program), str(tmp_path / "gateway")]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as starter:
        assert starter.stdout is not None
        pidfd = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    ended = select.select([pidfd], [], [], WAIT_S)[0]
    os.close(pidfd)
    if not ended:
        pytest.fail("the gateway runs on")
