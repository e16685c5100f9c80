"""A Pulsar that requires tokens, checks permissions, and is reached by TLS, for all tests of security."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulsar
from pydantic import SecretStr

from deploy.local.secured import BROKER, GATEWAY
from gateway.pulsar.settings import PulsarSettings
from tests.integration.native import Admin
from tests.support.tls_pulsar import TlsPulsar

ROOT = "root"
"""A super user. Gateways are only administrators of their tenants."""


class SecuredPulsar(TlsPulsar):
    def __init__(self, folder: Path, more_settings: Mapping[str, str] = {}) -> None:
        settings = {"forceDeleteNamespaceAllowed": "true", **more_settings}
        super().__init__(folder, super_users=(ROOT, BROKER), more_settings=settings)

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
        self.root.call("PUT", f"tenants/{name}", _tenant(administrators))

    def set_administrators(self, tenant: str, roles: Sequence[str]) -> None:
        """Besides the gateways."""
        self.root.call("POST", f"tenants/{tenant}", _tenant(roles))

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
            tls_trust_certs=self.security.authority, operation_timeout_ms=60_000,
        )  # fmt: skip


def _tenant(administrators: Sequence[str]) -> dict[str, Any]:
    return {"adminRoles": [GATEWAY, *administrators], "allowedClusters": ["standalone"]}
