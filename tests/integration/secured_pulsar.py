"""A Pulsar that requires tokens, checks permissions, and is reached by TLS: the one of all tests of security."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pulsar
from pydantic import SecretStr

from deploy.local.process import free_port
from deploy.local.secured import BROKER, GATEWAY, LocalSecurity
from deploy.local.standalone import PulsarStandalone
from gateway.pulsar.settings import PulsarSettings
from tests.integration.native import Admin

ROOT = "root"
"""A super user. Gateways are only administrators of their tenants."""


class SecuredPulsar(PulsarStandalone):
    def __init__(self, folder: Path) -> None:
        self.security = LocalSecurity(folder / "security")
        self._ports_tls = free_port(), free_port()
        issued = self.security.server_certificate("127.0.0.1")
        tls = {
            "brokerServicePortTls": str(self._ports_tls[0]), "webServicePortTls": str(self._ports_tls[1]),
            "tlsCertificateFilePath": str(issued.certificate), "tlsKeyFilePath": str(issued.key),
        }  # fmt: skip
        settings = self.security.pulsar_settings | {"superUserRoles": f"{BROKER},{ROOT}"} | tls
        super().__init__(folder / "data", settings=settings, token=self.security.token(ROOT))

    @property
    def service_url(self) -> str:
        return f"pulsar+ssl://{self.host}:{self._ports_tls[0]}"

    @property
    def admin_url(self) -> str:
        return f"https://{self.host}:{self._ports_tls[1]}"

    @property
    def root(self) -> Admin:
        """Requests of a super user."""
        context = ssl.create_default_context(cafile=self.security.authority)
        return Admin(self, token=self.security.token(ROOT), tls=context)

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        super().wait_ready(timeout_s)
        self.create_tenant("kafka")  # gateways use it unless their configuration names another one

    def create_tenant(self, name: str, *administrators: str) -> None:
        """Gateways are administrators of the tenant, and these roles are, too."""
        roles = {"adminRoles": [GATEWAY, *administrators], "allowedClusters": ["standalone"]}
        self.root.call("PUT", f"tenants/{name}", roles)

    def gateway_section(self, role: str = GATEWAY) -> dict[str, Any]:
        """What a gateway has to know in its section `[pulsar]`, besides the addresses."""
        return {"token": self.security.token(role), "tls_trust_certs": str(self.security.authority)}

    def native_client(self) -> pulsar.Client:
        """Pulsar's own client, as a super user."""
        return pulsar.Client(
            self.service_url, authentication=pulsar.AuthenticationToken(self.security.token(ROOT)),
            tls_trust_certs_file_path=str(self.security.authority), tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )  # fmt: skip

    def client_settings(self, role: str) -> PulsarSettings:
        return PulsarSettings(
            service_url=self.service_url, admin_url=self.admin_url, token=SecretStr(self.security.token(role)),
            tls_trust_certs=self.security.authority, operation_timeout_ms=10_000,
        )  # fmt: skip
