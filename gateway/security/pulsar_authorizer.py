"""The authorizer `pulsar`: a client may do what Pulsar has granted to the role of the same name.

Grants are read again every few seconds. If they cannot be read for STALE_S, they may have been revoked: then everything
is denied, except to super users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import structlog

from gateway.background import TaskGroup
from gateway.fleet.clock import lease_now_ms
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError
from gateway.security.acls import Requester
from gateway.security.pulsar_grants import Grants, grants_of
from protocol.kafka.acl import AclOperation, ResourceType

POLL_S = 5.0
STALE_S = 60.0
PROVIDER = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
_USER, _ANONYMOUS = "User:", "User:ANONYMOUS"
_FORBIDDEN = frozenset({401, 403})

log = structlog.get_logger()


class InvalidAuthorizer(Exception):
    """The brokers decide differently from this authorizer; the text says how."""


class PulsarAuthorizer:
    def __init__(self, admin: AdminClient, tenant: str, namespace: str, super_users: Collection[str]) -> None:
        self.read = asyncio.Event()
        """Set when the grants are known."""
        self._admin = admin
        self._tenant = tenant
        self._namespace = namespace
        self._super_users = frozenset(super_users)
        self._grants: Grants | None = None
        self._wildcards = False
        self._read_at_s = 0.0
        self._changes = 0
        self._may_read_administrators = True
        self._has_started = False
        self._tasks = TaskGroup()

    async def start(self) -> None:
        """Return when the grants are known; call it again if that took too long. Raises InvalidAuthorizer, or
        PulsarError if Pulsar cannot be queried."""
        await self._check_brokers()
        if not self._has_started:
            self._has_started = True
            self._tasks.keep_running("grants of Pulsar", self._keep_reading)
        await self.read.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def _check_brokers(self) -> None:
        try:
            settings = await self._admin.brokers.runtime_configuration()
        except AdminError as error:
            if error.status not in _FORBIDDEN:
                raise
            log.warning("whether the brokers use their own authorization cannot be read without superuser rights")
            return
        provider = settings.get("authorizationProvider") or PROVIDER
        if settings.get("authorizationEnabled") == "true" and provider != PROVIDER:
            raise InvalidAuthorizer(f"the brokers decide by {provider}; the authorizer `pulsar` knows only {PROVIDER}")
        self._wildcards = settings.get("authorizationAllowWildcardsMatching") == "true"

    # Reading

    async def _keep_reading(self) -> None:
        while True:
            try:
                await self.refresh()
            except (PulsarError, TimeoutError) as error:
                log.warning("cannot read Pulsar's grants", error=str(error) or type(error).__name__)
            await asyncio.sleep(POLL_S)

    async def refresh(self) -> None:
        """Raises PulsarError and TimeoutError."""
        asked_at_s = lease_now_ms() / 1000
        policies = await self._admin.namespaces.policies(self._namespace)
        administrators = await self._administrators()
        grants = grants_of(self._namespace, policies, administrators, wildcards=self._wildcards)
        if grants != self._grants:
            self._grants = grants
            self._changes += 1
        self._read_at_s = asked_at_s
        self.read.set()

    async def _administrators(self) -> list[str]:
        try:
            tenant: dict[str, Any] = await self._admin.namespaces.tenant(self._tenant)
        except AdminError as error:
            if error.status not in _FORBIDDEN:
                raise
            if self._may_read_administrators:
                self._may_read_administrators = False
                log.warning("administrators of the tenant cannot be read without superuser rights: set super_users")
            return []
        return list(tenant.get("adminRoles") or ())

    # Deciding

    @property
    def _is_stale(self) -> bool:
        return lease_now_ms() / 1000 - self._read_at_s > STALE_S

    def version(self) -> int:
        return 2 * self._changes + self._is_stale

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if who.principal in self._super_users:
            return True
        role, grants = _role(who), self._grants
        if role is None or grants is None or self._is_stale:
            return False
        return grants.allows(role, operation, resource_type, name)

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        if who.principal in self._super_users:
            return True
        role, grants = _role(who), self._grants
        if role is None or grants is None or self._is_stale:
            return False
        return grants.allows_any(role, operation, resource_type)


def _role(who: Requester) -> str | None:
    """None for a client that has not logged in: nothing can be granted to it."""
    is_role = who.principal.startswith(_USER) and who.principal != _ANONYMOUS
    return who.principal.removeprefix(_USER) if is_role else None
