"""TLS between gateways: each shows a certificate, and accepts only certificates whose name is on the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.config.gateway_config import FORWARDING_LISTENER, ForwardingSection
from gateway.observability.metrics import Metrics
from gateway.transport.carried import Carried
from gateway.transport.certificates import Certificates
from gateway.transport.tls import READ_BUFFER_BYTES, TlsConnection


class PeerNames:
    """The names of the gateways' certificates."""

    def __init__(self, names: tuple[str, ...]) -> None:
        from protocol.x509.distinguished_name import distinguished_name  # noqa: PLC0415  # as in CertificateNames

        self._names = frozenset(names)
        self._distinguished_name = distinguished_name

    def is_of_peer(self, certificate: bytes | None) -> bool:
        """`certificate` is in DER, and signed by a trusted authority."""
        try:
            return certificate is not None and self._distinguished_name(certificate) in self._names
        except ValueError:
            return False


class PeerSecurity:
    """The TLS of the connections that this gateway opens."""

    def __init__(self, section: ForwardingSection, metrics: Metrics) -> None:
        """Raises InvalidCertificate."""
        assert section.tls is not None
        self._certificates = Certificates(FORWARDING_LISTENER, section.tls, None, metrics)
        self._names = PeerNames(section.peer_names)
        self._read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))

    async def renew(self) -> None:
        await self._certificates.renew()

    def secured(
        self, link: Carried, on_refused: Callable[[str], None], timeout_s: float
    ) -> TlsConnection:
        """The protocol for the link's socket. `on_refused` gets the reason if the connection fails."""

        def carry(tls: TlsConnection) -> Carried | None:
            return link if self._names.is_of_peer(tls.certificate) else None

        return TlsConnection(
            self._certificates.current, self._read_buffer, carry, _Opening(on_refused), timeout_s=timeout_s,
            opens=True,
        )  # fmt: skip


class _Opening:
    """Counts no connections, because this gateway has opened them itself."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        self._on_refused = on_refused

    def arrived(self, host: str) -> bool:
        return True

    def throttle_time_s(self, host: str) -> float:
        return 0.0

    def left(self, host: str) -> None:
        """The connection was not counted."""

    def take_turn(self, step: Callable[[], None]) -> None:
        step()

    def refused(self, reason: str, address: str, **facts: Any) -> None:
        self._on_refused(f"{reason} {facts.get('error') or ''}".strip())
