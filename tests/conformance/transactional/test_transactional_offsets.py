"""Offsets of groups in transactions (KIP-98, KIP-447): AddOffsetsToTxn (25), TxnOffsetCommit (28), and the responses of
OffsetFetch (9) while they are pending and afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.groups import test_consumer_groups as consumer
from tests.conformance.groups import test_groups as classic
from tests.conformance.groups.test_groups import new_group
from tests.conformance.transactional.offsets import (
    ELSEWHERE,
    commit,
    describe,
    elsewhere,
    joined,
    show,
    show_when_stable,
    topic_of,
)
from tests.conformance.transactions import FOREIGN_IDENTITIES, Transactional, read_committed, unnoted

VERSIONS = range(5)
OF_LAST_EPOCH = {"producer_epoch": 32767}
"""Kafka 3.9 takes any later epoch of a producer that has offsets open; behind the last one, nobody can abort them."""
WITH_MEMBER = range(3, 5)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("committed", [True, False])
def test_pending_until_the_end(conversation: Conversation, version: int, committed: bool) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 5, 1: 6})
    describe(conversation, producer.transactional_id)
    for require_stable in (True, False):
        show(conversation, group, require_stable=require_stable)
    producer.end(3, committed=committed)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("committed", [True, False])
def test_over_a_committed_offset(conversation: Conversation, version: int, committed: bool) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    classic.commit(conversation, 5, group, topic_of(conversation), 0)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 50})
    for require_stable in (True, False):
        show(conversation, group, require_stable=require_stable)
    producer.end(3, committed=committed)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("committed", [True, False])
def test_plain_commit_after_a_pending_one(conversation: Conversation, version: int, committed: bool) -> None:
    """The newer one in the log wins (KAFKA-5247)."""
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 50})
    classic.commit(conversation, 5, group, topic_of(conversation), 0)
    show(conversation, group, require_stable=False)
    show(conversation, group, require_stable=True)
    producer.end(3, committed=committed)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
def test_twice_in_a_transaction(conversation: Conversation, version: int) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    for offset in (50, 40):
        commit(conversation, version, producer, group, {0: offset})
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("first_commits", [True, False])
def test_two_producers(conversation: Conversation, version: int, first_commits: bool) -> None:
    group, first, second = new_group(conversation), Transactional(conversation), Transactional(conversation)
    joined(conversation, first, group)
    joined(conversation, second, group)
    commit(conversation, version, first, group, {0: 10, 1: 11})
    commit(conversation, version, second, group, {0: 20})
    second.end(3, committed=True)
    show(conversation, group, require_stable=True, partitions=(1,))
    first.end(3, committed=first_commits)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
def test_without_adding_the_group(conversation: Conversation, version: int) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    commit(conversation, version, producer, group, {0: 5})
    show(conversation, group, require_stable=True)
    joined(conversation, producer, elsewhere(conversation, group))
    commit(conversation, version, producer, group, {0: 5})
    show(conversation, group, require_stable=True)


@case("TxnOffsetCommit")
@pytest.mark.parametrize(
    "foreign",
    [
        *(each for each in FOREIGN_IDENTITIES if each != OF_LAST_EPOCH),
        {"group_id": ""},
        {"group_id": ELSEWHERE},
        {"topics": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("ongoing", [True, False])
def test_foreign(conversation: Conversation, version: int, foreign: dict[str, Any], ongoing: bool) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    if ongoing:
        unnoted(conversation, lambda: commit(conversation, 3, producer, group, {1: 1}))
    identity = {name: value for name, value in foreign.items() if name not in ("group_id", "topics")}
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": None}]
    fields = {"group_id": group, "topics": [{"name": topic_of(conversation), "partitions": rows}]}
    fields |= {name: value for name, value in foreign.items() if name in ("group_id", "topics")}
    if fields["group_id"] == ELSEWHERE:
        fields["group_id"] = elsewhere(conversation, group)
    conversation.call("TxnOffsetCommit", version, **producer.identity(**identity), **fields)
    show(conversation, group, require_stable=True)


@case("TxnOffsetCommit")
def test_after_the_end(conversation: Conversation, version: int) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 5})
    producer.finish(committed=True)
    commit(conversation, version, producer, group, {0: 6})
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
def test_fenced(conversation: Conversation, version: int) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 5})
    new = Transactional(conversation, name=producer.transactional_id)
    show_when_stable(conversation, group)
    commit(conversation, version, producer, group, {0: 6})
    joined(conversation, new, group)
    commit(conversation, version, producer, group, {0: 6})
    commit(conversation, version, new, group, {0: 7})
    new.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("rows", [{0: -1}, {0: -2}, {7: 5}, {-1: 5}, {0: 2**63 - 1}, {0: 1, 7: 1}], ids=str)
def test_odd_partitions_and_offsets(conversation: Conversation, version: int, rows: dict[int, int]) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, rows)
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("topic", ["no-such-topic", "", "a b"])
def test_unknown_topic(conversation: Conversation, version: int, topic: str) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 1}, topic=topic or "?")


@case("TxnOffsetCommit")
@pytest.mark.parametrize("metadata", [None, "", "x" * 4096, "x" * 4097], ids=lambda text: str(len(text or "")))
def test_metadata(conversation: Conversation, version: int, metadata: str | None) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 1}, metadata=metadata)
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
@pytest.mark.parametrize("sizes", [(1, 5000), (5000, 1, 5000), (1, 5000, 1)], ids=str)
@pytest.mark.parametrize("topics", [1, 2])
def test_the_same_partition_again(
    conversation: Conversation, version: int, sizes: tuple[int, ...], topics: int
) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    epochs = {"committed_leader_epoch": -1} if version >= 2 else {}
    asked = classic.named_again(topic_of(conversation), sizes, topics, epochs)
    conversation.call("TxnOffsetCommit", version, **producer.identity(), group_id=group, topics=asked)
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit", WITH_MEMBER)
@pytest.mark.parametrize(
    "member",
    [
        {},
        {"generation_id": 5},
        {"generation_id": -2},
        {"member_id": "nobody"},
        {"member_id": "nobody", "generation_id": 0},
        {"group_instance_id": "static"},
    ],
    ids=str,
)
def test_member_of_a_group_without_members(conversation: Conversation, version: int, member: dict[str, Any]) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 1}, **member)


@case("TxnOffsetCommit")
def test_member_of_a_classic_group(conversation: Conversation, version: int) -> None:
    """KIP-447: a member that has left cannot commit. Older versions name no member, so they can."""
    group, producer = new_group(conversation), Transactional(conversation)
    answer = unnoted(conversation, lambda: classic.join(conversation, 3, group))
    member, generation = answer["member_id"], answer["generation_id"]
    unnoted(conversation, lambda: classic.sync(conversation, 3, group, member, generation))
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 1})
    if version in WITH_MEMBER:
        for named, number in ((member, generation), (member, generation + 1), (member, -1), ("x", generation)):
            commit(conversation, version, producer, group, {0: 2}, member_id=named, generation_id=number)
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("TxnOffsetCommit")
def test_member_of_a_consumer_group(conversation: Conversation, version: int) -> None:
    """KIP-848: the member's epoch is its generation."""
    group, producer = new_group(conversation), Transactional(conversation)
    answer = unnoted(
        conversation, lambda: consumer.join(conversation, 0, group, "m1", [consumer.topic_of(conversation)])
    )
    member, epoch = answer["member_id"], answer["member_epoch"]
    joined(conversation, producer, group)
    commit(conversation, version, producer, group, {0: 1})
    if version in WITH_MEMBER:
        for named, number in ((member, epoch), (member, epoch + 1), (member, epoch - 1), (member, -1), ("x", epoch)):
            commit(conversation, version, producer, group, {0: 2}, member_id=named, generation_id=number)
    unnoted(conversation, lambda: consumer.beat(conversation, 0, group, member, consumer.LEAVE))
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("AddOffsetsToTxn")
def test_add_offsets(conversation: Conversation, version: int) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    producer.add_offsets(version, group)
    producer.add_offsets(version, group)
    producer.add_offsets(version, "another")
    producer.add_offsets(version, "")
    producer.end(3, committed=True)


@case("AddOffsetsToTxn")
@pytest.mark.parametrize("foreign", FOREIGN_IDENTITIES, ids=str)
def test_add_offsets_of_a_foreign_producer(conversation: Conversation, version: int, foreign: dict[str, Any]) -> None:
    group, producer = new_group(conversation), Transactional(conversation)
    producer.add_offsets(version, group, **foreign)
    describe(conversation, producer.transactional_id)


@case("AddOffsetsToTxn")
def test_offsets_and_records_end_together(conversation: Conversation, version: int) -> None:
    """Consume, transform, produce: one transaction over a partition and a group."""
    group, producer = new_group(conversation), Transactional(conversation)
    topic = topic_of(conversation)
    conversation.start_here(topic, 2)
    for number, committed in enumerate((True, False, True)):
        producer.add_offsets(version, group)
        producer.begin(topic, 1, 2, prefix=f"n{number}-")
        commit(conversation, 3, producer, group, {0: 10 + number})
        producer.end(3, committed=committed)
        show_when_stable(conversation, group)
    unnoted(conversation, lambda: producer.add_offsets(3, group))  # answered when all markers are written
    read_committed(conversation, topic, 0, 2)


@case("OffsetFetch", range(6, 10))
@pytest.mark.parametrize("require_stable", [True, False])
@pytest.mark.parametrize("whole_group", [True, False])
def test_fetch_while_pending(conversation: Conversation, version: int, require_stable: bool, whole_group: bool) -> None:
    """UNSTABLE_OFFSET_COMMIT for a partition, not for others; v6 has no such option."""
    group, producer, topic = new_group(conversation), Transactional(conversation), topic_of(conversation)
    classic.commit(conversation, 5, group, topic, 1)
    joined(conversation, producer, group)
    commit(conversation, 3, producer, group, {0: 5})
    rows = None if whole_group else [{"name": topic, "partition_indexes": [0, 1, 2]}]
    stable = {"require_stable": require_stable} if version >= 7 else {}
    if version < 8:
        conversation.call("OffsetFetch", version, group_id=group, topics=rows, **stable)
    else:
        member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
        conversation.call("OffsetFetch", version, groups=[{"group_id": group, "topics": rows, **member}], **stable)


@case("OffsetDelete")
def test_delete_while_pending(conversation: Conversation, version: int) -> None:
    group, producer, topic = new_group(conversation), Transactional(conversation), topic_of(conversation)
    classic.commit(conversation, 5, group, topic, 0)
    joined(conversation, producer, group)
    commit(conversation, 3, producer, group, {0: 5})
    rows = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    conversation.call("OffsetDelete", version, group_id=group, topics=rows)
    show(conversation, group, require_stable=False)
    producer.end(3, committed=True)
    show_when_stable(conversation, group)


@case("DeleteGroups", [2])
@pytest.mark.parametrize("committed_before", [True, False])
def test_delete_group_while_pending(conversation: Conversation, version: int, committed_before: bool) -> None:
    group, producer, topic = new_group(conversation), Transactional(conversation), topic_of(conversation)
    if committed_before:
        classic.commit(conversation, 5, group, topic, 1)
    joined(conversation, producer, group)
    commit(conversation, 3, producer, group, {0: 5})
    classic.describe(conversation, 5, group)
    conversation.call("DeleteGroups", version, groups_names=[group])
    producer.end(3, committed=True)
    show_when_stable(conversation, group)
    conversation.call("DeleteGroups", version, groups_names=[group])
