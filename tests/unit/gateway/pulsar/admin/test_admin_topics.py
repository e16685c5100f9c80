"""Topic names become paths of the admin API, and its answers become values."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.pulsar.admin.http import AdminHttp
from gateway.pulsar.admin.topics import Ledger, TopicsAdmin, topic_path
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


def admin_that_answers(headers: Mapping[str, str] | None = None, found: object = None) -> TopicsAdmin:
    class Http:
        async def request(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(headers=headers, body=b"")

        async def get_json(self, *_: Any) -> Any:
            return found

    return TopicsAdmin(cast(AdminHttp, Http()), 32)


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


@pytest.mark.parametrize(
    ("state", "listed", "current"),
    [
        ("LedgerOpened", 0, 5),
        ("ClosingLedger", 0, 5),
        ("CreatingLedger", 5, 5),
        ("Terminated", 0, 5),  # since the broker has loaded the topic
        ("Terminated", 5, 0),  # before
    ],
)
async def test_the_last_ledger_has_its_entries_in_each_state(state: str, listed: int, current: int) -> None:
    """A log whose entries were all in it looked empty for a moment, and its start moved to its end for good."""
    topics = admin_that_answers(found={
        "state": state, "ledgers": [{"ledgerId": 3, "entries": listed, "size": 10 * listed}],
        "currentLedgerEntries": current, "currentLedgerSize": 10 * current, "lastConfirmedEntry": "3:4",
        "pendingAddEntriesCount": 0, "entriesAddedCounter": 5, "cursors": {},
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1},
    })  # fmt: skip
    assert (await topics.internal_stats(TOPIC)).ledgers == (Ledger(3, 5, 50),)
