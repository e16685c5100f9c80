"""Kafka's topic names as Pulsar's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.topics.topic_names import collision_key, from_pulsar, invalid_reason, to_pulsar

legal_names = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True) | st.lists(
    st.sampled_from(["a", "-partition-", "-partition", "0", "partition-", "."]), min_size=1, max_size=5
).map("".join)


@given(name=legal_names.filter(lambda name: invalid_reason(name) is None))
def test_every_legal_name_comes_back_from_pulsar(name: str) -> None:
    assert from_pulsar(to_pulsar(name)) == name
    assert "-partition-" not in to_pulsar(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a" * 250,
        "a b",
        "a/b",
        "ä",
        "a\n",
        "a~b",
        "__change_events",
        "__transaction_log_0",
        "x__transaction_pending_ack",
    ],
)
def test_refused(name: str) -> None:
    assert invalid_reason(name) is not None


@pytest.mark.parametrize(
    "name", ["a" * 249, "...", "A-z_0.9", "__consumer_offsets", "__transaction_state", "a-partition-0"]
)
def test_taken(name: str) -> None:
    assert invalid_reason(name) is None


def test_names_that_kafka_metrics_cannot_tell_apart() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b.c")


@given(local_name=st.text(max_size=20) | legal_names | legal_names.map(to_pulsar))
def test_what_clients_could_not_name_is_hidden(local_name: str) -> None:
    name = from_pulsar(local_name)
    assert name is None or (invalid_reason(name) is None and to_pulsar(name) == local_name)
