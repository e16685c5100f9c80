"""A log with transactions that were committed and aborted, and one that stays open."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.records import batch, records
from tests.conformance.requests import produce_fields
from tests.conformance.transactions import Transactional, one_segment

MAX_TIMEOUT_MS = 900_000
LOG = "transactional-log"
END, STABLE = 18, 15


def filled(conversation: Conversation) -> str:
    """Written once a session: plain 0-1 | A 2-4 and B 5-6 | A commits 7 | plain 8 | B 9 | B aborts 10 | C 11-12 |
    C aborts 13 | plain 14 | D stays open 15-16 | plain 17.
    """
    fresh = not conversation.has_topic(LOG)
    topic = one_segment(conversation, LOG)
    if fresh:
        first, second, third = (Transactional(conversation) for _ in range(3))
        fourth = Transactional(conversation, stays_open=True, timeout_ms=MAX_TIMEOUT_MS)
        write_plain(conversation, topic, 2)
        first.begin(topic, 3, prefix="a")
        second.begin(topic, 2, prefix="b")
        first.finish(committed=True)
        write_plain(conversation, topic, 1)
        second.write(topic, 1, prefix="b")
        second.finish(committed=False)
        third.begin(topic, 2, prefix="c")
        third.finish(committed=False)
        write_plain(conversation, topic, 1)
        fourth.begin(topic, 2, prefix="d")
        write_plain(conversation, topic, 1)
        assert conversation.end_offset(topic) == END
    return topic


def write_plain(conversation: Conversation, topic: str, count: int) -> None:
    data = batch(records(count, prefix="plain"))
    answer = conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: data}}))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def without_ids(conversation: Conversation) -> None:
    """Remove producer ids from the last response: the writers are those of an earlier case."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: (("<any>", *item[1:]) if key == "producer" else clean(item))
                for key, item in value.items()
                if key != "producer_id"
            }
        return [clean(item) for item in value] if isinstance(value, list) else value

    conversation.answers[-1] = clean(conversation.answers[-1])
