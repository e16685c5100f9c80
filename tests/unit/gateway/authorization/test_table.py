"""Every API has its guard."""

from __future__ import annotations

from gateway.authorization.guard import nothing_needed
from gateway.authorization.table import GUARDS
from gateway.handlers.table import APIS

OPEN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster", "Fetch"}
"""APIs before login; DescribeCluster returns only what the client may do; Fetch is checked for each partition."""


def test_every_api_has_a_guard() -> None:
    assert not set(APIS) - set(GUARDS)


def test_only_these_are_handled_unasked() -> None:
    assert {api.name for api in APIS.values() if GUARDS[api.key] is nothing_needed} == OPEN
