"""haproxy in front of TLS: it forwards TLS, or terminates it and passes on the subject of the client's certificate."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.certificates import Authority, Issued
from deploy.local.process import ChildProcess, free_port
from tests.integration.native import wait_for
from tests.integration.secured import PASSWORD, USER
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.security.test_login import round_trip
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

NAMES = ("passed", "ended", "ended_sasl")
FOUND_S = 20.0
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


class Behind:
    """A gateway behind haproxy with all listeners. The gateway terminates TLS of `passed`, haproxy that of the others.
    """

    def __init__(self, pulsar: SecuredPulsar, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("haproxy", hosts=[HOST])
        self.client = self.authority.issue("client")
        self.outside = {name: free_port() for name in NAMES}
        self.inside = {name: free_port() for name in NAMES}
        mutual = {"client_auth": "required", "principal_rules": "RULE:^CN=(client)$/$1/U"}
        files = {
            "certificate": str(self.server.certificate), "key": str(self.server.key),
            "authorities": str(self.authority.certificate),
        }  # fmt: skip
        kinds: dict[str, dict[str, Any]] = {
            "passed": {"protocol": "SSL", "tls": files, **mutual},
            "ended": {"protocol": "SSL", **mutual},
            "ended_sasl": {"protocol": "SASL_SSL", "mechanisms": ["PLAIN"]},
        }
        listeners = [
            {
                "name": name, "host": HOST, "port": self.inside[name], "proxy_protocol": True,
                "advertised_port": self.outside[name], **kind,
            }
            for name, kind in kinds.items()
        ]  # fmt: skip
        self.gateway = gateway_on(
            pulsar, folder / "gateway", pulsar={"namespace": unique_topic("haproxy-tls")},
            kafka={"host": HOST, "port": free_port(), "listeners": listeners},
            security={"users": {USER: PASSWORD}},
        )  # fmt: skip
        both = folder / "haproxy.pem"
        both.write_bytes(self.server.certificate.read_bytes() + self.server.key.read_bytes())
        config = folder / "haproxy.cfg"
        config.write_text(self._config(both))
        self._haproxy = ChildProcess("haproxy", folder / "haproxy.log")
        self._command = ["haproxy", "-db", "-f", str(config)]

    def _config(self, certificate: Path) -> str:
        authority = self.authority.certificate
        end = f"ssl crt {certificate}"
        return "\n".join(
            [
                "defaults", "    mode tcp", "    timeout connect 5s", "    timeout client 1m", "    timeout server 1m",
                *self._proxy("passed", "", "send-proxy-v2"),
                *self._proxy("ended", f"{end} ca-file {authority} verify optional", "send-proxy-v2-ssl-cn"),
                *self._proxy("ended_sasl", end, "send-proxy-v2-ssl-cn"), "",
            ]
        )  # fmt: skip

    def _proxy(self, name: str, bind: str, send: str) -> list[str]:
        address = f"{HOST}:{self.inside[name]}"
        return [f"listen {name}", f"    bind {HOST}:{self.outside[name]} {bind}", f"    server one {address} {send}"]

    def start(self) -> None:
        self._haproxy.start(self._command)
        deadline = time.monotonic() + FOUND_S
        while True:
            try:
                socket.create_connection((HOST, self.outside["passed"]), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "haproxy does not start"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        self._haproxy.stop()

    def config(self, name: str, client: Issued | None = None) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": f"{HOST}:{self.outside[name]}", "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.certificate),
        }  # fmt: skip
        if client is not None:
            config |= {"ssl.certificate.location": str(client.certificate), "ssl.key.location": str(client.key)}
        return config


@pytest.fixture(scope="module")
def behind(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    found = Behind(secured_pulsar, tmp_path_factory.mktemp("haproxy"))
    with running(found.gateway):
        found.start()
        try:
            yield found
        finally:
            found.stop()


@pytest.mark.parametrize("name", ["passed", "ended"])
def test_the_certificate_names_the_client(behind: Behind, name: str) -> None:
    round_trip(behind.config(name, behind.client))


def test_a_password_through_tls_that_haproxy_ends(behind: Behind) -> None:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    round_trip(behind.config("ended_sasl") | sasl | {"security.protocol": "sasl_ssl"})


@pytest.mark.parametrize("name", ["passed", "ended"])
def test_no_certificate_or_another_name(behind: Behind, name: str) -> None:
    for client in (None, behind.authority.issue("mallory")):
        admin = AdminClient(behind.config(name, client))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)


def closes(behind: GatewayProcess, port: int, data: bytes) -> None:
    with socket.create_connection((HOST, port), 10) as connected:
        connected.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            assert connected.recv(1) == b""


def test_a_header_that_does_not_speak_of_tls(behind: Behind) -> None:
    """Version 1 of the header has no TLS fields; version 2 must have them."""
    line = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n"
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    addresses = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack(">HH", 51_000, 9_092)
    plain = V2_SIGNATURE + b"\x21\x11" + struct.pack(">H", len(addresses)) + addresses
    unverified = b"\x20\0\x0b" + struct.pack(">BI", 7, 1) + b"\x22\0\x03abc"
    untrue = V2_SIGNATURE + b"\x21\x11" + struct.pack(">H", len(addresses) + len(unverified)) + addresses + unverified
    for header in (line, plain, untrue):
        closes(behind.gateway, behind.inside["ended"], header + request)
    for reason in ("no TLS", "client certificate not accepted"):  # a thread writes the log
        is_logged = partial(lambda text: text in behind.gateway.log_path.read_text(), reason)
        wait_for(is_logged, "the log says why")
