"""What a gateway knows of security, and who decides by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.config import AuthorizationSection
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.security.authorizer import AclAuthorizer, Authorizer
from gateway.security.records import Record, ScramKey
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.sasl.scram import ScramCredential, ScramMechanism


class Security:
    """The state that administrators set, and changes of it."""

    def __init__(self, state: SecurityState, log: SecurityLog, config: AuthorizationSection) -> None:
        self.state = state
        self.has_acls = config.authorizer == "acl"
        self.authorizer: Authorizer | None = None
        self._log = log
        if self.has_acls:
            self.authorizer = AclAuthorizer(
                state, config.super_users, allow_everyone=config.allow_everyone_if_no_acl_found
            )

    async def wait_authorizing(self) -> None:
        """Return when the authorizer, if there is one, knows all that it decides by."""
        if self.has_acls:
            await self._log.loaded.wait()

    def start(self) -> None:
        self._log.start()

    async def close(self) -> None:
        await self._log.close()

    async def change(self, records: Iterable[Record]) -> None:
        """Return when they hold here, and soon everywhere. Raises PulsarError when that is not known."""
        changes = list(records)
        if changes:
            await self._log.append(changes)

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """The credential of a user, if it has one."""
        return self.state.scram.get(ScramKey(mechanism, user))


def new_security(
    client: PulsarClient, admin: AdminClient, namespace: str, config: AuthorizationSection,
    takes_snapshots: Callable[[], bool],
) -> Security:  # fmt: skip
    state = SecurityState()
    return Security(state, SecurityLog(client, admin, namespace, state, takes_snapshots), config)
