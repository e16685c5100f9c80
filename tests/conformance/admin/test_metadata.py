"""Metadata (key 3), v0 to v12: topics by name and by id, and automatic creation."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, case

SINCE_V1 = range(1, 13)
TOPIC_IDS = (10, 11, 12)
NO_ID = uuid.UUID(int=0)
ILLEGAL_NAMES = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a:b", "a\x00b"]


def ask(
    conversation: Conversation, version: int, names: list[str] | None, *, create: bool = False, **more: Any
) -> dict[str, Any]:
    """Request topics of this run by name. Before v4 a request cannot forbid creation."""
    topics = None if names is None else [{"name": name} for name in names]
    return conversation.call("Metadata", version, topics=topics, **(options(version, create) | more))


def options(version: int, create: bool) -> dict[str, Any]:
    return {"allow_auto_topic_creation": create} if version >= 4 else {}


def only_ours(conversation: Conversation) -> None:
    """A response about all topics may have topics of other tests."""
    noted = conversation.answers[-1]["Metadata"]
    noted["topics"] = [topic for topic in noted["topics"] if (topic["name"] or "").startswith("<run>metadata")]


@case("Metadata")
def test_by_name(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("metadata", partitions=3)
    conversation.topic_id("metadata")
    ask(conversation, version, [topic])


@case("Metadata")
def test_all_topics(conversation: Conversation, version: int) -> None:
    """An empty list in v0, null from v1."""
    conversation.topic("metadata", partitions=3)
    conversation.topic("metadata-second")
    for name in ("metadata", "metadata-second"):
        conversation.topic_id(name)
    ask(conversation, version, [] if version == 0 else None)
    only_ours(conversation)


@case("Metadata", SINCE_V1)
def test_no_topics(conversation: Conversation, version: int) -> None:
    ask(conversation, version, [])


@case("Metadata", range(4, 13))
def test_unknown_topic(conversation: Conversation, version: int) -> None:
    ask(conversation, version, [conversation.names.prefix + "metadata-unknown"])


@case("Metadata", range(4, 13))
def test_known_and_unknown(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("metadata", partitions=3)
    conversation.topic_id("metadata")
    ask(conversation, version, [topic, conversation.names.prefix + "metadata-unknown", "a b"])


@case("Metadata")
@pytest.mark.parametrize("name", ILLEGAL_NAMES, ids=lambda name: repr(name[:9]))
@pytest.mark.parametrize("create", [False, True])
def test_illegal_name(conversation: Conversation, version: int, name: str, create: bool) -> None:
    ask(conversation, version, [name], create=create)


@case("Metadata")
@pytest.mark.parametrize("create", [False, True])
def test_name_of_the_metadata_log(conversation: Conversation, version: int, create: bool) -> None:
    """It is not created."""
    for _ in range(2):
        ask(conversation, version, ["__cluster_metadata"], create=create)


@case("Metadata")
def test_topic_named_twice(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("metadata", partitions=3)
    conversation.topic_id("metadata")
    ask(conversation, version, [topic, topic])


@case("Metadata")
def test_automatic_creation(conversation: Conversation, version: int) -> None:
    """At first the topic does not exist; a little later it does."""
    name = f"{conversation.names.prefix}metadata-auto-{version}"
    created = conversation.client.call("Metadata", version, topics=[{"name": name}], **options(version, True))
    conversation.say(created["topics"][0]["name"] == name)
    deadline = time.monotonic() + READY_WITHIN_S
    while created["topics"][0]["error_code"] and time.monotonic() < deadline:
        conversation.say({"error before it is there": created["topics"][0]["error_code"]})
        time.sleep(0.02)
        created = conversation.client.call("Metadata", version, topics=[{"name": name}], **options(version, False))
    conversation.answers = [answer for answer in conversation.answers if not isinstance(answer, dict)]
    conversation.topic_id(f"metadata-auto-{version}")
    ask(conversation, version, [name])


@case("Metadata", TOPIC_IDS)
def test_by_id(conversation: Conversation, version: int) -> None:
    """Only v12 finds topics by id."""
    conversation.topic("metadata", partitions=3)
    wanted = {"topic_id": conversation.topic_id("metadata"), "name": None}
    conversation.call("Metadata", version, topics=[wanted], **options(version, False))


@case("Metadata", TOPIC_IDS)
@pytest.mark.parametrize("create", [False, True])
def test_by_unknown_id(conversation: Conversation, version: int, create: bool) -> None:
    wanted = {"topic_id": uuid.UUID(int=2**64 + 1), "name": None}
    conversation.call("Metadata", version, topics=[wanted], **options(version, create))


@case("Metadata", TOPIC_IDS)
def test_by_neither(conversation: Conversation, version: int) -> None:
    conversation.call("Metadata", version, topics=[{"topic_id": NO_ID, "name": None}], **options(version, False))


@case("Metadata", TOPIC_IDS)
def test_by_name_and_id(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("metadata", partitions=3)
    known = conversation.topic_id("metadata")
    for topic_id in (known, uuid.UUID(int=5)):
        wanted = {"topic_id": topic_id, "name": topic}
        conversation.call("Metadata", version, topics=[wanted], **options(version, False))


@case("Metadata", range(8, 13))
def test_authorized_operations(conversation: Conversation, version: int) -> None:
    """Without an authorizer everything is allowed."""
    topic = conversation.topic("metadata", partitions=3)
    conversation.topic_id("metadata")
    more: dict[str, Any] = {"include_topic_authorized_operations": True}
    if version <= 10:
        more["include_cluster_authorized_operations"] = True
    ask(conversation, version, [topic, conversation.names.prefix + "metadata-unknown"], **more)


@case("Metadata", TOPIC_IDS)
@pytest.mark.parametrize("beside", [[], [NO_ID]], ids=str)
def test_ids_beside_names(conversation: Conversation, version: int, beside: list[uuid.UUID]) -> None:
    topic = conversation.topic("metadata", partitions=3)
    ids = [conversation.topic_id("metadata"), uuid.UUID(int=5), *beside]
    wanted: list[dict[str, Any]] = [{"topic_id": each, "name": None} for each in ids]
    wanted += [{"name": topic}, {"name": topic + "-unknown"}, {"name": "a b"}, *wanted]
    conversation.call("Metadata", version, topics=wanted, **options(version, False))


@case("Metadata", [12])
def test_authorized_operations_of_unknown_ids(conversation: Conversation, version: int) -> None:
    wanted = {"topic_id": uuid.UUID(int=5), "name": None}
    conversation.call("Metadata", version, topics=[wanted], include_topic_authorized_operations=True)
