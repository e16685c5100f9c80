"""A gateway in this process that authorizes all requests, charges them to quotas, or both."""

from gateway.security.acls import Acl
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER
from gateway.security.records import QuotaKey, acl_record, quota_record
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from tests.bench.inside.scene import Scene

OTHER_ACLS = 1_000
QUOTAS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
LARGE_RATE = 1e12
"""A quota that is never reached."""


def guarded_scene(*, acls: bool = True, quotas: bool = True) -> Scene:
    """ACLs that allow everything to clients without a login, among many ACLs of others; and quotas of all users."""
    scene = Scene(authorization={"authorizer": "acl"}) if acls else Scene()
    if acls:
        _add_acls(scene.cluster.security.state)
    scene.cluster.security.state.complete()
    if quotas:
        for quota in QUOTAS:
            key = QuotaKey(frozenset({(USER, None)}), quota)
            scene.cluster.security.state.apply(quota_record(key, LARGE_RATE))
    return scene


def _add_acls(state: SecurityState) -> None:
    for number in range(OTHER_ACLS):
        state.apply(acl_record(_acl(ResourceType.TOPIC, f"other-{number}", "User:other"), present=True))
    for kind in (ResourceType.TOPIC, ResourceType.GROUP):
        state.apply(acl_record(_acl(kind, "*", "User:ANONYMOUS"), present=True))


def _acl(kind: ResourceType, name: str, principal: str) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, principal, "*", AclOperation.ALL, Permission.ALLOW)
