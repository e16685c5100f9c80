"""Requests at random of a client with rights at random: the same rows are denied, hidden and answered as in Kafka."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.acls import acl_filter
from tests.conformance.conversation import READY_WITHIN_S, Conversation, Pair
from tests.conformance.data.test_random_fetches import AT_RANDOM
from tests.conformance.logins import SUPER_USER
from tests.conformance.security.random_requests import OFFSET, request, rows
from tests.conformance.security.random_rights import GROUPS, TOPICS, TRANSACTIONS, Draw, random_acls
from tests.conformance.security.test_rights_of_users import log_in

REQUESTS = 20
LISTS = {
    "Metadata": ("topics", "name"),
    "DescribeTopicPartitions": ("topics", "name"),
    "ListGroups": ("groups", "group_id"),
    "ListTransactions": ("transaction_states", "transactional_id"),
}
"""Of these, the rows of other tests are left out."""
KEYS = "name", "topic", "topic_id", "group_id", "transactional_id", "resource_type", "resource_name", "partition_index"


class Client:
    """Alice, and the super user who gives her rights."""

    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self._root = log_in(conversation.client, SUPER_USER)
        self._alice = log_in(conversation.connect(), "alice")
        self.prefix = conversation.names.prefix
        for topic in TOPICS:
            conversation.topic(topic, partitions=2)
        self.topic_ids = {topic: conversation.topic_id(topic) for topic in TOPICS}
        for group in GROUPS:
            self._commit(self.prefix + group)
        for name in TRANSACTIONS:
            named = {"transactional_id": self.prefix + name}
            conversation.when_loaded("FindCoordinator", 1, key=self.prefix + name, key_type=1)
            conversation.when_loaded("InitProducerId", 1, **named, transaction_timeout_ms=60_000)
        conversation.answers.clear()

    def _commit(self, group: str) -> None:
        talk = self._talk
        talk.when_loaded("FindCoordinator", 1, key=group, key_type=0)
        talk.when_loaded("OffsetFetch", 5, group_id=group, topics=[])
        topics = rows([self.prefix + topic for topic in TOPICS], OFFSET | {"partition_index": 0})
        talk.call("OffsetCommit", 2, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)

    def gets(self, acls: list[dict[str, Any]]) -> None:
        self._root.call("DeleteAcls", 3, filters=[acl_filter()])
        self._await_acls(0)
        self._root.call("CreateAcls", 3, creations=acls)
        self._await_acls(len({json.dumps(each, sort_keys=True) for each in acls}))

    def _await_acls(self, count: int) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            answer = self._root.call("DescribeAcls", 3, **acl_filter())
            if sum(len(row["acls"]) for row in answer["resources"]) == count:
                return
            time.sleep(0.02)
        raise AssertionError(answer)

    def asks(self, api: str, version: int, fields: dict[str, Any]) -> None:
        self._talk.receive(api, version, self._alice.send(api, version, **fields), self._alice)
        self._talk.answers[-1] = {api: self._comparable(api, self._talk.answers[-1][api])}

    def _comparable(self, api: str, answer: dict[str, Any]) -> dict[str, Any]:
        if api in LISTS:
            field, name = LISTS[api]
            answer[field] = [row for row in answer[field] if (row[name] or "<run>").startswith("<run>")]
        if api == "Fetch":  # Kafka may split a topic's row
            topics: dict[str, Any] = {}
            for row in answer["responses"]:
                known = topics.setdefault(row.get("topic") or row["topic_id"], row | {"partitions": []})
                known["partitions"] += row["partitions"]
            answer["responses"] = [*topics.values()]
        found: dict[str, Any] = in_order(answer)
        return found


def in_order(value: Any) -> Any:
    """Which configurations there are is compared elsewhere."""
    if isinstance(value, dict):
        return {key: bool(each) if key == "configs" else in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=_key)
    return value


def _key(row: Any) -> str:
    return repr([row.get(key) for key in KEYS]) if isinstance(row, dict) else repr(row)


@AT_RANDOM
@given(seed=st.integers(0, 2**32))
def test_random_rights(pair_with_logins: Pair, seed: int) -> None:
    def converse(conversation: Conversation) -> None:
        client = Client(conversation)
        acls = random_acls(Random(seed), client.prefix)
        client.gets(acls)
        for number in range(REQUESTS):
            draw = Draw(Random(f"{seed} {number}"), client.prefix, client.topic_ids, acls)
            client.asks(*request(draw))

    pair_with_logins.check(f"test_random_rights {seed}", converse)
