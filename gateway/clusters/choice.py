"""Chooses the cluster of a connection, and checks whether its principal may use that cluster.

| the listener's cluster | requested at login | sections that name the principal | cluster |
| --- | --- | --- | --- |
| A | nothing, or A | any | A |
| A | another | any | refused |
| none | A | any | A |
| none | nothing | none | the fleet's own |
| none | nothing | one, for one cluster | that one |
| none | nothing | several, or one for all of a tenant | refused: the client has to request a cluster |

A user that was created in a cluster (SCRAM) uses this cluster, also if another user has the same name.

A principal that sections name may use their clusters. Any other principal may use the fleet's own cluster, and those of
everybody (`*`). Super users may use all clusters. A client that has not logged in may use its listener's cluster;
a client that has logged in with the name of such clients may use none.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.clusters import ClusterSection, section_of
from gateway.config.gateway_config import Config
from gateway.config.security import ANONYMOUS_NAME
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Principal

EVERYBODY = "*"


def choose(
    config: Config, fixed: str | None, principal: Principal, asked: str | None, *, is_own_user: bool = False
) -> str | None:
    """Return the name; None is the fleet's own cluster. Raises ClusterRefused.

    `fixed` is the listener's cluster, `asked` the one that the client named when it logged in, or whose own user it is.
    """
    if fixed is not None and asked is not None and asked != fixed:
        raise ClusterRefused("cluster differs from the listener's")
    if principal.has_logged_in and principal.name == ANONYMOUS_NAME:
        raise ClusterRefused("the name of clients without login")
    is_super = principal.has_logged_in and str(principal) in config.authorization.super_users
    naming = [] if is_super or not principal.has_logged_in else _naming(config.kafka.clusters, principal)
    name = fixed or asked or _only(naming)
    if name is None or name == config.pulsar.full_namespace:
        if naming:
            raise ClusterRefused("cluster is not permitted")
        return None
    section = section_of(config.kafka.clusters, config.pulsar.both_namespaces, name)
    if section is None:
        raise ClusterRefused("cluster is not served")
    if not (is_own_user or is_super or (_may_use(section, naming) if principal.has_logged_in else fixed == name)):
        raise ClusterRefused("cluster is not permitted")
    return name


def home_of(config: Config, fixed: str | None, user: str) -> str | None:
    """The cluster whose own users may have this name; None if only the fleet's own cluster may.

    Names of super users are excluded, because a super user may use every cluster.
    """
    principal = Principal(name=user)
    if str(principal) in config.authorization.super_users:
        return None
    name = fixed
    if name is None:
        naming = _naming(config.kafka.clusters, principal)
        name = naming[0].namespace if len(naming) == 1 and not naming[0].namespace.endswith("/*") else None
    if name is None or section_of(config.kafka.clusters, config.pulsar.both_namespaces, name) is None:
        return None
    return name


def _naming(sections: Iterable[ClusterSection], principal: Principal) -> list[ClusterSection]:
    return [each for each in sections if principal.name in each.users]


def _only(naming: list[ClusterSection]) -> str | None:
    if not naming:
        return None
    if len(naming) > 1 or naming[0].namespace.endswith("/*"):
        raise ClusterRefused("no cluster is chosen")
    return naming[0].namespace


def _may_use(section: ClusterSection, naming: list[ClusterSection]) -> bool:
    return section in naming if naming else EVERYBODY in section.users
