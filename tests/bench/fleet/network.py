"""A gateway with a network of its own: a network namespace whose virtual cable can be unplugged.

One end of a pair of virtual interfaces goes down: packets are lost in both directions, without any notice. Pulsar
listens on loopback only, so haproxy forwards its ports at both ends of the cable.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.local.process import ChildProcess

HERE, THERE = "10.213.77.1", "10.213.77.2"
TIMEOUT_S = 10


class Unpluggable:
    def __init__(self, name: str) -> None:
        self.name = name
        self.host = THERE
        """The address where the gateway listens."""

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command that is to run in the namespace."""
        return ["ip", "netns", "exec", self.name]

    def unplug(self) -> None:
        _ip("-n", self.name, "link", "set", "cable", "down")

    def plug(self) -> None:
        _ip("-n", self.name, "link", "set", "cable", "up")


def why_not() -> str | None:
    """The reason why this machine allows no network namespaces, None if it does."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root, and the command ip"
    name = f"probe{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.decode().strip()}"
    return None


@contextmanager
def unpluggable(work_dir: Path, ports: Sequence[int]) -> Iterator[Unpluggable]:
    """A network namespace where these ports of loopback lead to the same ports here."""
    there = Unpluggable(f"gw{uuid.uuid4().hex[:8]}")
    relays = [ChildProcess(f"relay {end}", work_dir / f"relay-{end}.log") for end in ("here", "there")]
    _ip("netns", "add", there.name)
    try:
        _connect(there.name)
        for relay, prefix, listen, target in (
            (relays[0], [], HERE, "127.0.0.1"), (relays[1], there.prefix, "127.0.0.1", HERE),
        ):  # fmt: skip
            file = work_dir / f"{relay.name.replace(' ', '-')}.cfg"
            file.write_text(_relay_config(ports, listen, target))
            relay.start([*prefix, "haproxy", "-db", "-f", str(file)])
        yield there
    finally:
        for relay in relays:
            relay.kill()
        _ip("link", "delete", there.name)
        _ip("netns", "delete", there.name)


def _connect(name: str) -> None:
    """The interface on this side has the namespace's name, the other one is called cable."""
    _ip("link", "add", name, "type", "veth", "peer", "name", "cable", "netns", name)
    _ip("address", "add", f"{HERE}/30", "dev", name)
    _ip("link", "set", name, "up")
    _ip("-n", name, "address", "add", f"{THERE}/30", "dev", "cable")
    for interface in ("lo", "cable"):
        _ip("-n", name, "link", "set", interface, "up")


def _relay_config(ports: Sequence[int], listen: str, target: str) -> str:
    parts = ["defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1h\n    timeout server 1h\n"]
    parts += [f"listen relay-{port}\n    bind {listen}:{port}\n    server pulsar {target}:{port}\n" for port in ports]
    return "\n".join(parts)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=TIMEOUT_S)
