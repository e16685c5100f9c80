"""Markers are written only for the newest connection of each gateway."""

from __future__ import annotations

from gateway.coordination.transactions.marker_links import MAX_GATEWAYS, MarkerLinks, client_ids


def test_a_newer_link_replaces_the_older_ones() -> None:
    links, ids = MarkerLinks(), client_ids()
    first, second, third = next(ids), next(ids), next(ids)
    assert links.admits(first)
    assert links.admits(first)
    assert links.admits(third)
    assert not links.admits(first)
    assert not links.admits(second)
    assert links.admits(third)


def test_gateways_do_not_replace_each_other() -> None:
    links, one, other = MarkerLinks(), client_ids(), client_ids()
    first = next(one)
    next(other)
    assert links.admits(next(other))
    assert links.admits(first)


def test_clients_have_no_links() -> None:
    links = MarkerLinks()
    for name in (None, "", "adminclient-1", "markers:1:2", "markers:" + "0" * 32 + ":-1"):
        assert links.admits(name)
        assert links.admits(name)


def test_what_is_remembered_is_bounded() -> None:
    links, ids = MarkerLinks(), client_ids()
    old, new = next(ids), next(ids)
    assert links.admits(new)
    for number in range(MAX_GATEWAYS):
        assert links.admits(f"markers:{number:032x}:1")
    assert links.admits(old)
