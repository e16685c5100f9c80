"""DescribeTopicPartitions (key 75), v0: pages, cursors and limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case

TOPICS = {"pages-a": 3, "pages-b": 1, "pages-c": 4}
Cursor = tuple[str, int]


def describe(
    conversation: Conversation, names: list[str], limit: int = 2000, cursor: Cursor | None = None
) -> dict[str, Any]:
    for name, partitions in TOPICS.items():
        conversation.topic(name, partitions=partitions)
        conversation.topic_id(name)
    prefix = conversation.names.prefix
    asked = [{"name": prefix + name if name.startswith("pages") else name} for name in names]
    place = None if cursor is None else {"topic_name": prefix + cursor[0], "partition_index": cursor[1]}
    fields = {"topics": asked, "response_partition_limit": limit, "cursor": place}
    return conversation.call("DescribeTopicPartitions", 0, **fields)


@case("DescribeTopicPartitions")
@pytest.mark.parametrize("limit", [2000, 8, 7, 5, 4, 3, 2, 1, 0, -1, 2**31 - 1])
def test_limit(conversation: Conversation, version: int, limit: int) -> None:
    describe(conversation, list(reversed(TOPICS)), limit)


@case("DescribeTopicPartitions")
@pytest.mark.parametrize(
    "cursor",
    [("pages-a", 0), ("pages-a", 2), ("pages-a", 3), ("pages-b", 0), ("pages-c", 7), ("pages-c", 1), ("pages-c", -1)],
    ids=str,
)
@pytest.mark.parametrize("limit", [2000, 2])
def test_cursor(conversation: Conversation, version: int, limit: int, cursor: Cursor) -> None:
    describe(conversation, list(TOPICS), limit, cursor)


@case("DescribeTopicPartitions")
@pytest.mark.parametrize("cursor", [("pages-", 0), ("pages-bb", 2), ("pages-z", 0)], ids=str)
def test_cursor_at_no_topic(conversation: Conversation, version: int, cursor: Cursor) -> None:
    describe(conversation, list(TOPICS), 2000, cursor)
    describe(conversation, [*TOPICS, cursor[0]], 2000, cursor)


@case("DescribeTopicPartitions")
@pytest.mark.parametrize("limit", [2000, 4, 3])
def test_unknown_topics_and_illegal_names(conversation: Conversation, version: int, limit: int) -> None:
    describe(conversation, ["pages-aa", "pages-b", "a b", ".", "pages-c", "x" * 250], limit)


@case("DescribeTopicPartitions")
def test_empty_name(conversation: Conversation, version: int) -> None:
    describe(conversation, ["", "pages-b"])


@case("DescribeTopicPartitions")
def test_named_twice(conversation: Conversation, version: int) -> None:
    describe(conversation, ["pages-b", "pages-b", "pages-nothing", "pages-nothing"])


@case("DescribeTopicPartitions")
def test_all_topics_page_by_page(conversation: Conversation, version: int) -> None:
    """The pages from the first of this run's topics; the other topics differ."""
    cursor: dict[str, Any] | None = {"topic_name": conversation.topic("pages-a", partitions=3), "partition_index": 1}
    for name, partitions in TOPICS.items():
        conversation.topic(name, partitions=partitions)
    found: list[tuple[str, int]] = []
    while cursor is not None and cursor["topic_name"] <= conversation.names.prefix + "pages-c":
        fields = {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        answer = conversation.client.call("DescribeTopicPartitions", version, **fields)
        for topic in answer["topics"]:
            found += [(topic["name"], part["partition_index"]) for part in topic["partitions"]]
        cursor = answer["next_cursor"]
    names = {conversation.names.prefix + name: name for name in TOPICS}
    conversation.say([(names[name], number) for name, number in found if name in names])
