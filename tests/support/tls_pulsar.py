"""A Pulsar that requires tokens, checks permissions, and is reached by TLS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.local.process import free_port
from deploy.local.secured import BROKER, GATEWAY, LocalSecurity
from deploy.local.standalone import PulsarStandalone


class TlsPulsar(PulsarStandalone):
    def __init__(
        self, folder: Path, super_users: Sequence[str] = (BROKER, GATEWAY), more_settings: Mapping[str, str] = {}
    ) -> None:
        self.security = LocalSecurity(folder / "security")
        self._ports_tls = free_port(), free_port()
        issued = self.security.server_certificate("127.0.0.1")
        tls = {
            "brokerServicePortTls": str(self._ports_tls[0]), "webServicePortTls": str(self._ports_tls[1]),
            "tlsCertificateFilePath": str(issued.certificate), "tlsKeyFilePath": str(issued.key),
        }  # fmt: skip
        settings = self.security.pulsar_settings | {"superUserRoles": ",".join(super_users)} | tls
        settings |= more_settings
        super().__init__(folder / "data", settings=settings, token=self.security.token(super_users[0]))

    @property
    def service_url(self) -> str:
        return f"pulsar+ssl://{self.host}:{self._ports_tls[0]}"

    @property
    def admin_url(self) -> str:
        return f"https://{self.host}:{self._ports_tls[1]}"

    def gateway_section(self, role: str = GATEWAY) -> dict[str, Any]:
        """What a gateway has to know in its section `[pulsar]`, besides the addresses."""
        return {"token": self.security.token(role), "tls_trust_certs": str(self.security.authority)}
