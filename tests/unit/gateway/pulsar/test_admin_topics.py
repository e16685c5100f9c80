"""Topic names become paths of the admin API, and its answers become values."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.pulsar.admin_http import AdminHttp
from gateway.pulsar.admin_topics import TopicsAdmin, topic_path
from gateway.pulsar.position import Position

TOPIC = "persistent://t/ns/topic-partition-0"


def test_a_plain_name() -> None:
    assert topic_path("persistent://t/ns/a.b_c-1-partition-0", "stats") == "persistent/t/ns/a.b_c-1-partition-0/stats"


def test_every_odd_character_is_encoded_once() -> None:
    assert topic_path("persistent://t/ns/ä +%25/?#") == "persistent/t/ns/%C3%A4%20%2B%2525%2F%3F%23"


@pytest.mark.parametrize("name", ["plain", "persistent://t/ns", "persistent://t//x", "t/ns/x"])
def test_names_that_are_not_full(name: str) -> None:
    with pytest.raises(ValueError, match="full topic name"):
        topic_path(name)


def admin_that_answers(headers: Mapping[str, str]) -> TopicsAdmin:
    class Http:
        async def request(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(headers=headers, body=b"")

    return TopicsAdmin(cast(AdminHttp, Http()))


@pytest.mark.parametrize("published", ["2026-01-01T00:00:00.5Z", "+146138514-02-15T00:00:00Z", "-0001-01-01T00:00:00Z"])
async def test_an_entry_that_was_published_at_an_impossible_time(published: str) -> None:
    """A producer sets the time, for example in nanoseconds. Readers of the entry waited for ever."""
    topics = admin_that_answers({
        "X-Pulsar-publish-time": published,
        "X-Pulsar-Broker-Entry-METADATA-index": "7",
        "X-Pulsar-num-batch-message": "2",
    })
    found = await topics.entry(TOPIC, Position(1, 2))
    assert found is not None
    assert (found.position, found.index, found.num_messages) == (Position(1, 2), 7, 2)
