"""Before a gateway deletes a topic, or changes the format of an empty one, all others stop using it. Questions and
answers are in the fleet's log.

Otherwise a subscription that another gateway moves at this moment may be stored by Pulsar after the deletion: it stays
for ever, and with it the topic's name cannot be used again. And records that another gateway writes at this moment
would have the old format.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection

import structlog

from coordinator.fleet.messages import Message, TopicStop, TopicStopped

STOP_S = 5.0
"""A gateway that has not answered by then is cut off, or of an older version."""

log = structlog.get_logger()


class _Question:
    def __init__(self, asked: Collection[str]) -> None:
        self.unanswered = set(asked)
        self.answered = asyncio.Event()

    def leave_out(self, answered: Collection[str]) -> None:
        self.unanswered.difference_update(answered)
        if not self.unanswered:
            self.answered.set()


class TopicStops:
    """The questions of this gateway that others have not answered yet."""

    def __init__(self) -> None:
        self._questions: dict[str, _Question] = {}

    async def ask(self, topic: str, own: str, others: Collection[str], send: Callable[[Message], None]) -> None:
        """Return when all ``others`` have stopped or are no members any more, or after STOP_S.

        Members are given by their incarnations.
        """
        if not others:
            return
        request_id, question = str(uuid.uuid4()), _Question(others)
        self._questions[request_id] = question
        send(TopicStop(topic=topic, request_id=request_id, incarnation=own))
        try:
            async with asyncio.timeout(STOP_S):
                await question.answered.wait()
        except TimeoutError:
            log.warning("gateways do not answer before a topic changes", topic=topic, count=len(question.unanswered))
        finally:
            del self._questions[request_id]

    @property
    def is_waiting(self) -> bool:
        return bool(self._questions)

    def answered(self, answer: TopicStopped) -> None:
        question = self._questions.get(answer.request_id)
        if question is not None:
            question.leave_out([answer.incarnation])

    def members_changed(self, members: Collection[str]) -> None:
        """Gateways that are no longer members use no topic."""
        for question in self._questions.values():
            question.leave_out(question.unanswered - {*members})
