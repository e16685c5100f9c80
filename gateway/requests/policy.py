"""What a client is allowed to do, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Set
from sys import getsizeof
from typing import Any, Protocol

from gateway.requests.denials import DenialLog, Denied, RequestDenials
from gateway.requests.reply import Response
from gateway.security.acls import Requester
from gateway.security.authorizer import Authorizer
from gateway.topics.topic_names import MAX_NAME_LENGTH
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType

CLUSTER_OPERATIONS = frozenset(
    {
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    }
)  # fmt: skip
TOPIC_OPERATIONS = frozenset(
    {
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    }
)  # fmt: skip
GROUP_OPERATIONS = frozenset({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE})
KNOWN_BYTES = 3_000_000
"""The bound of the decisions that are cached for one connection: more than 10,000 with usual names."""
MAX_KNOWN_CHARACTERS = MAX_NAME_LENGTH
"""Decisions on longer names are not cached. No topic has one, and a request may name what does not exist."""
_DECISION_BYTES = 200
"""What a decision takes without its name."""

Decision = tuple[AclOperation, ResourceType, str]
"""What is decided on."""


class Policy(Protocol):
    """Decides for each request."""

    def version(self) -> int:
        """Increases when earlier decisions may be outdated."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool: ...

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on at least one resource of the type."""

    def cluster_operations(self) -> Set[AclOperation]: ...

    def topic_operations(self, topic: str) -> Set[AclOperation]: ...

    def group_operations(self, group_id: str) -> Set[AclOperation]: ...

    def audit_denial(self, api: str, began_s: float, denied: Denied) -> None:
        """Log a denied decision, once for a request: the client gets an authorization error for it.

        `began_s` is when the request began.
        """


class Charges(Protocol):
    """Knows what clients use, and their quotas."""

    @property
    def is_needed(self) -> bool:
        """At least one quota is set."""

    def charge(self, call: Any, response: Response) -> tuple[Response, int]:
        """Return the answer to a call, perhaps a replaced one, and the client's throttle time after it (ms)."""

    def bound(self, call: Any) -> None:
        """Limit the response to a Fetch to the largest size that the quota ever allows at once."""

    def repeated(self, call: Any) -> RepeatedCharges:
        """The charges of requests that resemble this call, and have the same user and client id."""


class RepeatedCharges(Protocol):
    """What the repeated requests of one client use."""

    def charge_within(self, size_bytes: int, busy_s: float) -> bool:
        """Charge a request if its client stays within its quotas.

        If it returns False, nothing was charged: the client may have to wait, and `Charges.charge` computes how long.
        """

    def has_room(self, size_bytes: int, busy_s: float) -> bool:
        """Whether `charge_within` would charge this."""

    def record(self, size_bytes: int, busy_s: float) -> None:
        """Charge a request, also above the quotas."""


class AllAllowed:
    """The policy without an authorizer."""

    def version(self) -> int:
        return 0

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True

    def cluster_operations(self) -> Set[AclOperation]:
        return CLUSTER_OPERATIONS

    def topic_operations(self, topic: str) -> Set[AclOperation]:
        return TOPIC_OPERATIONS

    def group_operations(self, group_id: str) -> Set[AclOperation]:
        return GROUP_OPERATIONS

    def audit_denial(self, api: str, began_s: float, denied: Denied) -> None:
        """There are no denials."""


ALL_ALLOWED = AllAllowed()


class Authorized:
    """The decisions of an authorizer for one principal on one connection. They are cached until anything changes."""

    __slots__ = (
        "_authorizer", "_denials", "_find_requester", "_known", "_known_bytes", "_requester", "_version", "version",
    )  # fmt: skip

    def __init__(self, authorizer: Authorizer, find_requester: Callable[[], Requester], denials: DenialLog) -> None:
        """`find_requester` is called with the first request, when the client's address is known."""
        self._authorizer = authorizer
        self.version = authorizer.version
        self._find_requester = find_requester
        self._denials = RequestDenials(denials)
        self._requester: Requester | None = None
        self._known: dict[Decision, bool] = {}
        self._known_bytes = 0
        self._version = -1

    @property
    def requester(self) -> Requester:
        if self._requester is None:
            self._requester = self._find_requester()
        return self._requester

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        version = self.version()
        if version != self._version:
            self._forget()
            self._version = version
        key = (operation, resource_type, name)
        known = self._known.get(key)
        if known is None:
            known = self._authorizer.allows(self.requester, operation, resource_type, name)
            if len(name) <= MAX_KNOWN_CHARACTERS:
                self._remember(key, known)
        return known

    def _remember(self, key: Decision, allowed: bool) -> None:
        size_bytes = getsizeof(key[2]) + _DECISION_BYTES
        if self._known_bytes + size_bytes > KNOWN_BYTES:
            self._forget()
        self._known[key] = allowed
        self._known_bytes += size_bytes

    def _forget(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self._authorizer.allows_any(self.requester, operation, resource_type)

    def audit_denial(self, api: str, began_s: float, denied: Denied) -> None:
        self._denials.denied(self.requester, api, began_s, denied)

    def cluster_operations(self) -> Set[AclOperation]:
        """Empty if the client may not even describe the cluster, as in Kafka."""
        if not self.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return frozenset()
        return self._allowed(CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)

    def topic_operations(self, topic: str) -> Set[AclOperation]:
        return self._allowed(TOPIC_OPERATIONS, ResourceType.TOPIC, topic)

    def group_operations(self, group_id: str) -> Set[AclOperation]:
        return self._allowed(GROUP_OPERATIONS, ResourceType.GROUP, group_id)

    def _allowed(self, operations: Set[AclOperation], resource_type: ResourceType, name: str) -> Set[AclOperation]:
        return {operation for operation in operations if self.allows(operation, resource_type, name)}
