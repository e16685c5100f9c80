"""Topic names become paths of the admin API."""

import pytest

from gateway.pulsar.admin_topics import topic_path


def test_a_plain_name() -> None:
    assert topic_path("persistent://t/ns/a.b_c-1-partition-0", "stats") == "persistent/t/ns/a.b_c-1-partition-0/stats"


def test_every_odd_character_is_encoded_once() -> None:
    assert topic_path("persistent://t/ns/ä +%25/?#") == "persistent/t/ns/%C3%A4%20%2B%2525%2F%3F%23"


@pytest.mark.parametrize("name", ["plain", "persistent://t/ns", "persistent://t//x", "t/ns/x"])
def test_names_that_are_not_full(name: str) -> None:
    with pytest.raises(ValueError, match="full topic name"):
        topic_path(name)
