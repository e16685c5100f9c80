"""haproxy itself accepts the generated configuration, which has every gateway."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deploy.haproxy.config import Backend, haproxy_config, single_address_config

GATEWAYS = [Backend("127.0.0.1", 9_093, 9_464), Backend("127.0.0.2", 9_094, 9_465)]


def test_each_gateway_has_a_frontend() -> None:
    text = haproxy_config(GATEWAYS, "127.0.0.1", 19_092)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("frontend")] == [
        "bootstrap", "gateway-0", "gateway-1",
    ]  # fmt: skip
    assert [line.split()[1] for line in text.splitlines() if line.startswith("    bind")] == [
        "127.0.0.1:19092", "127.0.0.1:19093", "127.0.0.1:19094",
    ]  # fmt: skip


def test_the_port_of_one_gateway_is_open_as_soon_as_it_serves_partitions() -> None:
    text = haproxy_config(GATEWAYS, "127.0.0.1", 19_092)
    asked = [line.split()[-1] for line in text.splitlines() if "httpchk" in line]
    assert asked == ["/readyz", "/readyz/partitions", "/readyz/partitions"]
    [asked_of_all] = [line for line in single_address_config(GATEWAYS, "h", 1).splitlines() if "httpchk" in line]
    assert asked_of_all.split()[-1] == "/readyz"


def test_a_single_address_has_one_frontend() -> None:
    lines = single_address_config(GATEWAYS, "127.0.0.1", 19_092).splitlines()
    assert [line.strip() for line in lines if line.startswith("    bind")] == ["bind 127.0.0.1:19092"]
    assert [line.split()[1] for line in lines if line.startswith("    server")] == ["gateway-0", "gateway-1"]


@pytest.mark.parametrize("config", [haproxy_config, single_address_config])
def test_haproxy_accepts_it(config: Callable[[Sequence[Backend], str, int], str], tmp_path: Path) -> None:
    file = tmp_path / "haproxy.cfg"
    file.write_text(config(GATEWAYS, "127.0.0.1", 19_092))
    checked = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "[WARNING]" not in checked.stderr, checked.stderr
