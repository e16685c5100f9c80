"""The principal of a connection."""

from __future__ import annotations

from gateway.requests.context import ANONYMOUS, GATEWAY, Principal


def test_a_login_is_not_told_by_the_name() -> None:
    assert Principal(name="ANONYMOUS") != ANONYMOUS and Principal(name="ANONYMOUS").has_logged_in
    assert not ANONYMOUS.has_logged_in


def test_gateways_name_principals_to_each_other() -> None:
    for principal in (ANONYMOUS, GATEWAY, Principal(name="a:b")):
        assert Principal.named(str(principal)) == principal
