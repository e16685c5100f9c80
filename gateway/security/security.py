"""The security state of a cluster, and the authorizer that decides by it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping

import structlog

from gateway.background import to_the_end
from gateway.config.gateway_config import PulsarSection
from gateway.config.security import AuthorizationSection
from gateway.errors import KafkaError
from gateway.fan_out import in_steps
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.security.acls import Requester
from gateway.security.address_quotas import AddressQuotas
from gateway.security.authorizer import AclAuthorizer, Authorizer
from gateway.security.pulsar_authorizer import PulsarAuthorizer
from gateway.security.quotas import Quotas
from gateway.security.records import Record, ScramKey, described, secret_record
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.kafka.errors import ErrorCode
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_forms import FormCounts

SECRET_BYTES = 32
TOO_MANY = "The cluster has too many ACLs, SCRAM users and quotas (limits.max_security_bytes)."
MAX_LOGGED = 50
"""The maximum number of changes in one log line."""

log = structlog.get_logger()


class Security:
    """The state that administrators set, and its changes."""

    def __init__(
        self,
        state: SecurityState,
        log: SecurityLog,
        authorizer: AclAuthorizer | PulsarAuthorizer | None,
        max_bytes: float = math.inf,
    ) -> None:
        """The state takes no more memory than `max_bytes`, about."""
        self.state = state
        self.quotas = Quotas(state)
        self.address_quotas = AddressQuotas(state)
        self.authorizer: Authorizer | None = authorizer
        self.has_acls = isinstance(authorizer, AclAuthorizer)
        self._pulsar = authorizer if isinstance(authorizer, PulsarAuthorizer) else None
        self._log = log
        self._max_bytes = max_bytes
        self._being_added_bytes = 0

    async def start(self, *, with_users: bool) -> None:
        """Return when the authorizer, if there is one, has loaded its rights; `with_users`, also all users.

        Raises InvalidAuthorizer, or PulsarError if Pulsar cannot be queried.
        """
        if self._pulsar is not None:
            await self._pulsar.start()
        self._log.start()
        if self.has_acls or with_users:
            await self._log.loaded.wait()

    async def close(self) -> None:
        if self._pulsar is not None:
            await self._pulsar.close()
        await self._log.close()

    async def catch_up(self) -> None:
        """Await this before the state decides what to change: another gateway may have answered its client with a
        change that is not read here yet. Raises PulsarError."""
        await self._log.catch_up()

    async def change(self, records: Iterable[Record], by: Requester) -> None:
        """Return when the changes are in effect here; other gateways follow soon. Raises PulsarError when that is not
        known, and KafkaError when there are too many settings."""
        changes = list(records)
        if not changes:
            return
        growth_bytes = max(0, await self._growth_bytes(dict(changes)))
        if growth_bytes and self.state.memory_bytes + self._being_added_bytes + growth_bytes > self._max_bytes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
        self._being_added_bytes += growth_bytes
        await to_the_end("security change", self._append(changes, growth_bytes, by), PulsarError)

    async def _growth_bytes(self, changes: Mapping[bytes, bytes | None]) -> int:
        return sum([self.state.growth_bytes(dict(step)) async for step in in_steps([*changes.items()])])

    async def _append(self, changes: list[Record], growth_bytes: int, by: Requester) -> None:
        """Goes on when the client has disconnected: what it has changed is logged all the same."""
        try:
            await self._log.append(changes)
        except PulsarError:
            _audit("security change with unknown result", changes, by)
            raise
        finally:
            self._being_added_bytes -= growth_bytes
        _audit("security changed", changes, by)

    async def secret(self) -> bytes:
        """The secret of the fleet, in its own cluster: written by the first gateway that asks. Raises PulsarError."""
        if self.state.secret is None:
            await self._log.append([secret_record(os.urandom(SECRET_BYTES))])
        if self.state.secret is None:
            raise RequestTimeoutError("the fleet's secret was deleted meanwhile")
        return self.state.secret

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """The credential of a user; None if the user has none for this mechanism."""
        return self.state.scram.get(ScramKey(mechanism, user))

    @property
    def unread_s(self) -> float:
        """For how long changes of other gateways could not be read."""
        return self._log.unread_s

    @property
    def is_deleted(self) -> bool:
        """Someone has deleted the settings, and with them usually the cluster."""
        return self._log.is_deleted

    @property
    def forms(self) -> FormCounts:
        return self.state.forms


def _audit(event: str, changes: list[Record], by: Requester) -> None:
    """`unnamed` is the number of changes that the line does not name."""
    logged = changes[:MAX_LOGGED]
    log.info(
        event, principal=by.principal, address=by.host, count=len(changes),
        unnamed=len(changes) - len(logged),
        set=[described(each) for each in logged if each[1] is not None],
        removed=[described(each) for each in logged if each[1] is None],
    )  # fmt: skip


def new_security(
    client: PulsarClient, admin: AdminClient, namespaces: PulsarSection, config: AuthorizationSection,
    max_bytes: int, takes_snapshots: Callable[[], bool],
) -> Security:  # fmt: skip
    """Create the security of the cluster of these namespaces. Its settings take no more memory than `max_bytes`."""
    state = SecurityState()
    authorizer: AclAuthorizer | PulsarAuthorizer | None = None
    if config.authorizer == "acl":
        authorizer = AclAuthorizer(state, config.super_users, allow_everyone=config.allow_everyone_if_no_acl_found)
    elif config.authorizer == "pulsar":
        authorizer = PulsarAuthorizer(admin, namespaces.tenant, namespaces.full_namespace, config.super_users)
    log = SecurityLog(client, admin, namespaces.full_system_namespace, state, takes_snapshots)
    return Security(state, log, authorizer, max_bytes)
