"""DeleteTopics (20), every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.topics import await_topic, create, layout, wanted


def delete(conversation: Conversation, version: int, *topics: str | uuid.UUID) -> None:
    if version >= 6:
        states = [{"name": topic} if isinstance(topic, str) else {"name": None, "topic_id": topic} for topic in topics]
        fields: dict[str, Any] = {"topics": states}
    else:
        fields = {"topic_names": list(topics)}
    conversation.call("DeleteTopics", version, timeout_ms=15_000, **fields)


def fresh_topic(conversation: Conversation, version: int, label: str) -> str:
    return conversation.topic(f"delete-{label}-{version}")


@case("DeleteTopics")
def test_delete(conversation: Conversation, version: int) -> None:
    """A retry finds no topic, and the name can be used again."""
    name = fresh_topic(conversation, version, "plain")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name)
    await_topic(conversation, name, present=False)
    delete(conversation, version, name)
    create(conversation, 4, wanted(name))


@case("DeleteTopics")
@pytest.mark.parametrize("name", ["no-such-topic", "", ".", "a b"])
def test_delete_unknown(conversation: Conversation, version: int, name: str) -> None:
    delete(conversation, version, conversation.names.prefix + name if name == "no-such-topic" else name)


@case("DeleteTopics")
def test_delete_twice_in_one_request(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "twice")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name, name)


@case("DeleteTopics")
def test_delete_known_and_unknown(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "mixed")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name, conversation.names.prefix + "no-such-topic")


@case("DeleteTopics")
def test_delete_nothing(conversation: Conversation, version: int) -> None:
    delete(conversation, version)


@case("DeleteTopics", [6])
def test_delete_by_id(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "by-id")
    topic_id = conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, topic_id)
    await_topic(conversation, name, present=False)
    delete(conversation, version, topic_id)


@case("DeleteTopics", [6])
def test_delete_by_odd_ids(conversation: Conversation, version: int) -> None:
    delete(conversation, version, uuid.UUID(int=0))
    delete(conversation, version, uuid.UUID(int=77))
    state = {"name": conversation.names.prefix + "no-such-topic", "topic_id": uuid.UUID(int=77)}
    conversation.call("DeleteTopics", version, topics=[state], timeout_ms=15_000)


@case("DeleteTopics", [6])
def test_delete_by_name_and_id(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "both")
    topic_id = conversation.topic_id(name.removeprefix(conversation.names.prefix))
    for topics in ([{"name": name, "topic_id": topic_id}], [{"name": name}, {"name": None, "topic_id": topic_id}]):
        conversation.call("DeleteTopics", version, topics=topics, timeout_ms=15_000)
    layout(conversation, name)


@case("DeleteTopics")
def test_unknown_names_twice(conversation: Conversation, version: int) -> None:
    delete(conversation, version, "no-such-topic", "a b", "no-such-topic", "", "a b", "a b", "another")


@case("DeleteTopics", [6])
def test_odd_rows_twice(conversation: Conversation, version: int) -> None:
    rows = [
        {"name": None, "topic_id": uuid.UUID(int=0)},
        {"name": None, "topic_id": uuid.UUID(int=77)},
        {"name": "no-such-topic", "topic_id": uuid.UUID(int=77)},
        {"name": "no-such-topic"},
    ]
    conversation.call("DeleteTopics", version, topics=rows * 2, timeout_ms=15_000)


@case("DeleteTopics", [6])
def test_known_id_twice(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "id-twice")
    topic_id = conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, topic_id, topic_id)
    layout(conversation, name)
