"""Announces deletions of topics to all gateways, repeatedly until the announcement is in the fleet's log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from coordinator.fleet.messages import Deletion, Message, Snapshot
from coordinator.topics import DeletedTopic
from gateway.fleet.fleet_log import SEND_AGAIN_S


class Deletions:
    def __init__(self) -> None:
        self._unread_s: dict[DeletedTopic, float] = {}
        """Deletions that were not read back yet, and the time when they were sent."""

    def add(self, topic: DeletedTopic) -> None:
        self._unread_s[topic] = float("-inf")

    def send_due(self, snapshot: Callable[[], Snapshot], send: Callable[[Message], None]) -> None:
        now_s = asyncio.get_running_loop().time()
        for topic, sent_s in [*self._unread_s.items()]:
            if now_s - sent_s >= SEND_AGAIN_S:
                self._unread_s[topic] = now_s
                send(
                    Deletion(
                        topics=(topic.name,), topic_ids={topic.name: topic.topic_id.hex()}, deleted_ms=topic.deleted_ms,
                        snapshot=snapshot(),
                    )
                )  # fmt: skip

    def read(self, message: Deletion) -> tuple[DeletedTopic, ...]:
        """The topics of an announcement in the log."""
        topics = tuple(
            DeletedTopic(name, bytes.fromhex(message.topic_ids.get(name, "")), message.deleted_ms or _wall_ms())
            for name in message.topics
        )
        for topic in topics:
            self._unread_s.pop(topic, None)
        return topics


def _wall_ms() -> int:
    return int(time.time() * 1000)
