"""Requests for offsets in transactions, which several tests send."""

from __future__ import annotations

from typing import Any

from tests.conformance import transactions
from tests.conformance.conversation import Conversation
from tests.conformance.groups.test_groups import new_group
from tests.conformance.transactions import Transactional, eventually, unnoted, when_free

FETCH_VERSION = 7
ELSEWHERE = "<elsewhere>"
PARTITION_COUNTS = (4, 50)
"""Numbers of partitions of __consumer_offsets: of a small broker, and the default."""


def topic_of(conversation: Conversation) -> str:
    return transactions.one_segment(conversation, "transactional-offsets", partitions=3)


def commit(
    conversation: Conversation,
    version: int,
    producer: Transactional,
    group: str,
    offsets: dict[int, int],
    *,
    topic: str | None = None,
    metadata: str | None = "m",
    **more: Any,
) -> dict[str, Any]:
    """TxnOffsetCommit of {partition: offset}."""
    epoch = {"committed_leader_epoch": 3} if version >= 2 else {}
    rows = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata, **epoch}
        for index, offset in offsets.items()
    ]
    fields = {"group_id": group, "topics": [{"name": topic or topic_of(conversation), "partitions": rows}]}
    return when_free(conversation, "TxnOffsetCommit", version, **(producer.identity() | fields | more))


def show(conversation: Conversation, group: str, *, require_stable: bool, partitions: tuple[int, ...] = (0, 1)) -> Any:
    asked = [{"name": topic_of(conversation), "partition_indexes": list(partitions)}]
    fields = {"group_id": group, "topics": asked, "require_stable": require_stable}
    return conversation.call("OffsetFetch", FETCH_VERSION, **fields)


def show_when_stable(conversation: Conversation, group: str) -> None:
    """Markers reach the group a moment after its transaction has ended."""
    before = list(conversation.answers)

    def ask() -> dict[str, Any]:
        conversation.answers[:] = before
        answer: dict[str, Any] = show(conversation, group, require_stable=True)
        return answer

    eventually(ask, lambda found: not any(row["error_code"] for row in found["topics"][0]["partitions"]))


def elsewhere(conversation: Conversation, group: str) -> str:
    """A group of another partition: the server verifies that the group's partition is in the transaction."""
    while True:
        other = new_group(conversation)
        if all(here != there for here, there in zip(_places(group), _places(other), strict=True)):
            return other


def _places(group: str) -> list[int]:
    """Java's String.hashCode without its sign: it chooses the partition of a group."""
    code = 0
    for letter in group:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return [min(code, 2**32 - code) % count for count in PARTITION_COUNTS]


def describe(conversation: Conversation, transactional_id: str) -> None:
    """The group's partition depends on its name."""
    transactions.describe(conversation, transactional_id)
    for state in conversation.answers[-1]["DescribeTransactions"]["transaction_states"]:
        for topic in state["topics"]:
            if topic["topic"] == "__consumer_offsets":
                topic["partitions"] = len(topic["partitions"])


def joined(conversation: Conversation, producer: Transactional, group: str) -> None:
    answer = unnoted(conversation, lambda: producer.add_offsets(3, group))
    assert answer["error_code"] == 0, answer
