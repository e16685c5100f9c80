"""Group names as subscription names: readable, accepted by Pulsar, and all different."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coordination.mirror.names import MAX_LENGTH, subscription_name


@pytest.mark.parametrize("group", ["orders", "Team_1.orders-v2", "a:b@c=d", "x" * MAX_LENGTH, "compaction"])
def test_usual_names_stay(group: str) -> None:
    assert subscription_name(group) == group


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("", "~"),
        ("a/b c", "a~2Fb~20c"),
        ("a%2Fb+c", "a~252Fb~2Bc"),
        ("a~2Fb", "a~7E2Fb"),
        ("é😀", "~C3~A9~F0~9F~98~80"),
        ("..", "~2E."),
        ("pulsar.repl.eu", "~70ulsar.repl.eu"),
        ("pulsar", "pulsar"),
        ("__compaction", "~5F_compaction"),
    ],
)
def test_what_pulsar_cannot_take_is_encoded(group: str, name: str) -> None:
    assert subscription_name(group) == name


def test_long_names_keep_their_begin() -> None:
    first, second = subscription_name("orders" * 100), subscription_name("orders" * 100 + "2")
    assert first != second
    assert first.startswith("ordersorders")
    assert len(first) == len(second) == MAX_LENGTH


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_names_are_different_and_safe(groups: list[str]) -> None:
    names = [subscription_name(group) for group in groups]
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(r"[a-zA-Z0-9._:@=~-]{1,250}", name)
        assert not re.match(r"pulsar\.|__compaction$", name)
