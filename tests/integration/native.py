"""Pulsar without the gateway: its own Python client and its admin REST API, to test interoperability."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pulsar

from deploy.local.standalone import PulsarStandalone

NAMESPACE = "kafka/default"
"""The gateway's default namespace."""
TIMEOUT_S = 60.0


def full_name(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


@contextmanager
def producer(server: PulsarStandalone, topic: str, **options: Any) -> Iterator[pulsar.Producer]:
    """A producer of Pulsar's own client on ``topic``, a local name or a full one."""
    client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client.create_producer(topic if "://" in topic else full_name(topic), **options)
    finally:
        client.close()


class Admin:
    """Requests about the topics of a gateway's namespace."""

    def __init__(
        self, server: PulsarStandalone, namespace: str = NAMESPACE, token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._tls = tls
        self._address = urlsplit(server.admin_url).netloc
        self._namespace = namespace
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded response of ``/admin/v2/{path}``. Fails on any status above 299."""
        connection = self._connect()
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/admin/v2/{path}", content, self._headers)
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status < 300, f"{method} {path}: {response.status} {text}"
            return json.loads(text) if text else None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self._address, timeout=TIMEOUT_S, context=self._tls)

    def topic(self, method: str, topic: str, suffix: str = "", body: Any = None) -> Any:
        return self.call(method, f"persistent/{self._namespace}/{topic}{suffix}", body)

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self.topic("PUT", topic, "/partitions", partitions)

    def create(self, topic: str) -> None:
        """Create a topic without partitions."""
        self.topic("PUT", topic)

    def unload(self, topic: str) -> None:
        """Close the topic: its next user loads it again, and a new ledger begins."""
        self.topic("PUT", topic, "/unload")

    def truncate(self, topic: str) -> None:
        """Delete the data of closed ledgers."""
        self.topic("DELETE", topic, "/truncate")

    def subscriptions(self, topic: str) -> list[str]:
        found: list[str] = self.topic("GET", topic, "/subscriptions")
        return found

    def ledgers(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.topic("GET", topic, "/internalStats")["ledgers"]
        return found


def wait_for(
    condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S, state: Callable[[], str] = str
) -> Any:
    """The first true result of ``condition``, for changes without an event. A failure is shown with ``state``."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what} {state()}"
        time.sleep(0.05)
    return found
