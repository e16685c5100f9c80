"""What the tests of CreateTopics, DeleteTopics and CreatePartitions share."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.conversation import READY_WITHIN_S, Conversation

NODE = None  # stands for the id of the server's only node


def wanted(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": configs} | more


def create(conversation: Conversation, version: int, *topics: dict[str, Any], validate_only: bool = False) -> None:
    """Compare the answer. The effective configs are not compared: each server has its own."""
    more = {"validate_only": validate_only} if version >= 1 else {}
    answer = conversation.call("CreateTopics", version, topics=list(topics), timeout_ms=15_000, **more)
    for noted in conversation.answers[-1]["CreateTopics"]["topics"]:
        if version >= 5:
            noted["configs"] = bool(noted["configs"])
        if noted.get("topic_id") == "<unknown id>":
            noted["topic_id"] = "<new id>"
    for topic in answer["topics"]:
        if not topic["error_code"] and not validate_only:
            await_topic(conversation, topic["name"])


def await_topic(conversation: Conversation, name: str, *, present: bool = True) -> None:
    """Wait until metadata shows the topic, or no longer shows it."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        error = conversation.client.call("Metadata", 5, **asked)["topics"][0]["error_code"]
        if (error == 0) == present and error in (0, 3):
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} did not become {'present' if present else 'absent'}")


def layout(conversation: Conversation, name: str) -> None:
    """Compare the metadata of a topic of this run."""
    conversation.call("Metadata", 5, topics=[{"name": name}], allow_auto_topic_creation=False)


def nodes_of(conversation: Conversation, nodes: list[int | None]) -> list[int]:
    return [conversation.node_id() if node is NODE else node for node in nodes]
