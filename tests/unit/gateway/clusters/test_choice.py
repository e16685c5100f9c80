"""The cluster of a connection, and the clients that may use it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.clusters.choice import choose, home_of
from gateway.config.clusters import cluster_hosts, section_of
from gateway.config.gateway_config import Config
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import ANONYMOUS, Principal

OWN = "kafka/default"


def config(*clusters: dict[str, Any]) -> Config:
    return Config.model_validate(
        {
            "kafka": {"clusters": clusters},
            "fleet": {"forwarding": {}},
            "authorization": {"super_users": ["User:root", "User:ANONYMOUS"]},
        }
    )


TENANTS = config(
    {"namespace": "acme/orders", "users": ["alice", "carol"]},
    {"namespace": "acme/*", "users": ["dora"]},
    {"namespace": "other/orders", "users": ["bob", "carol"]},
    {"namespace": "open/all", "users": ["*"]},
    {"namespace": "closed/all"},
)


def chosen(principal: str | None, fixed: str | None = None, asked: str | None = None) -> str | None:
    return choose(TENANTS, fixed, ANONYMOUS if principal is None else Principal(name=principal), asked)


@pytest.mark.parametrize(
    ("principal", "fixed", "asked", "cluster"),
    [
        (None, None, None, None),
        (None, "acme/orders", None, "acme/orders"),
        (None, "closed/all", None, "closed/all"),
        ("nobody", None, None, None),
        ("nobody", None, OWN, None),
        ("alice", None, None, "acme/orders"),
        ("alice", None, "acme/orders", "acme/orders"),
        ("alice", "acme/orders", "acme/orders", "acme/orders"),
        ("bob", "other/orders", None, "other/orders"),
        ("carol", None, "other/orders", "other/orders"),
        ("dora", None, "acme/new", "acme/new"),
        ("nobody", None, "open/all", "open/all"),
        ("nobody", "open/all", None, "open/all"),
        ("root", None, None, None),
        ("root", None, "closed/all", "closed/all"),
        ("root", "acme/orders", None, "acme/orders"),
    ],
)
def test_permitted_clusters(principal: str | None, fixed: str | None, asked: str | None, cluster: str | None) -> None:
    assert chosen(principal, fixed, asked) == cluster


@pytest.mark.parametrize(
    ("principal", "fixed", "asked"),
    [
        ("alice", "other/orders", None),
        ("alice", "other/orders", "acme/orders"),
        ("alice", None, "other/orders"),
        ("alice", None, OWN),
        ("alice", None, "open/all"),
        ("bob", None, "acme/orders"),
        ("carol", None, None),
        ("dora", None, None),
        ("dora", None, "acme/orders-gateway"),
        ("dora", None, "acme/.."),
        ("dora", None, "acme/a/b"),
        ("dora", None, "acme/"),
        ("dora", None, "acme/*"),
        ("nobody", None, "closed/all"),
        ("nobody", None, "kafka/default-gateway"),
        ("nobody", None, "nowhere/all"),
        ("nobody", "closed/all", None),
        ("ANONYMOUS", None, "acme/orders"),
        ("ANONYMOUS", "acme/orders", None),
        ("ANONYMOUS", "open/all", None),
        ("ANONYMOUS", None, None),
        (None, None, "acme/orders"),
    ],
)
def test_refused_clusters(principal: str | None, fixed: str | None, asked: str | None) -> None:
    with pytest.raises(ClusterRefused):
        chosen(principal, fixed, asked)


def test_no_cluster_is_where_state_is() -> None:
    """Clients of such a cluster could write records that gateways read."""
    own = {"acme/main", "acme/state"}
    everything = config({"namespace": "acme/*"}).kafka.clusters
    for name in ("acme/main", "acme/state", "acme/main-gateway", "acme/x-gateway"):
        assert section_of(everything, own, name) is None
    assert section_of(everything, {"acme/x-gateway"}, "acme/x") is None
    assert section_of(everything, own, "acme/x") is not None


@pytest.mark.parametrize(
    "namespace",
    ["kafka/default", "kafka/default-gateway", "a/x-gateway", "a/..", "../b", "a", "a/b/c", "*/b", "a/b*", "a/ü", ""],
)
def test_names_that_are_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="clusters"):
        config({"namespace": namespace})


def test_what_else_is_refused() -> None:
    with pytest.raises(ValueError, match="different"):
        config({"namespace": "a/b"}, {"namespace": "a/b"})
    with pytest.raises(ValueError, match=r"fleet.forwarding"):
        Config.model_validate({"kafka": {"clusters": [{"namespace": "a/b"}]}})
    with pytest.raises(ValueError, match="missing there"):
        Config.model_validate({"kafka": {"cluster": "a/b"}})


@pytest.mark.parametrize(
    ("user", "fixed", "home"),
    [
        ("alice", None, "acme/orders"), ("bob", None, "other/orders"), ("nobody", None, None),
        ("carol", None, None), ("dora", None, None), ("nobody", "closed/all", "closed/all"),
        ("alice", "open/all", "open/all"), ("nobody", "kafka/default", None), ("nobody", "not/served", None),
        ("root", "open/all", None), ("root", None, None),
    ],
)  # fmt: skip
def test_clusters_whose_own_users_may_log_in(user: str, fixed: str | None, home: str | None) -> None:
    assert home_of(TENANTS, fixed, user) == home


def test_a_user_of_a_cluster_uses_that_one_alone() -> None:
    """Users of the same name elsewhere have other rights."""
    for user in ("tom", "bob"):
        assert choose(TENANTS, None, Principal(name=user), "closed/all", is_own_user=True) == "closed/all"
    with pytest.raises(ClusterRefused):
        choose(TENANTS, "open/all", Principal(name="tom"), "closed/all", is_own_user=True)


def with_hosts(*clusters: dict[str, Any], **listener: Any) -> Config:
    files = {"certificate": "/c", "key": "/k"}
    outside = {"name": "outside", "port": 9093, "protocol": "SSL", "tls": files, "single_address": True} | listener
    kafka = {"clusters": clusters, "listeners": [outside]}
    return Config.model_validate({"kafka": kafka, "fleet": {"forwarding": {}}})


def test_host_names_of_clusters() -> None:
    found = with_hosts({"namespace": "a/b", "hosts": ["x.y", "z"]}, {"namespace": "c/d", "hosts": ["w"]})
    assert cluster_hosts(found.kafka.clusters) == {"x.y": "a/b", "z": "a/b", "w": "c/d"}


@pytest.mark.parametrize(
    ("clusters", "listener"),
    [
        ([{"namespace": "a/b", "hosts": ["x"]}, {"namespace": "c/d", "hosts": ["x"]}], {}),
        ([{"namespace": "a/b", "hosts": ["Upper"]}], {}),
        ([{"namespace": "a/b", "hosts": ["with space"]}], {}),
        ([{"namespace": "a/*", "hosts": ["x"]}], {}),
        ([{"namespace": "a/b", "hosts": ["x"]}], {"single_address": False}),
        ([{"namespace": "a/b", "hosts": ["x"]}], {"cluster": "a/b"}),
        ([{"namespace": "a/b", "hosts": ["x"]}], {"protocol": "PLAINTEXT", "tls": None}),
    ],
)
def test_host_names_that_say_nothing(clusters: list[dict[str, Any]], listener: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="host"):
        with_hosts(*clusters, **listener)
