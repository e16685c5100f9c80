"""The address of a broker."""

from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.pulsar.settings import DEFAULT_PORTS


class BrokerAddress(NamedTuple):
    """The URL to connect to and, behind a proxy, the broker (`host:port`) to which the proxy must connect."""

    url: str
    proxy_to: str | None = None

    @property
    def tls(self) -> bool:
        return self.url.startswith("pulsar+ssl")

    def host_port(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
