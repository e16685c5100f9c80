"""The batches of an idempotent producer that arrive at a single address, while the leaders behind it change.

For its client, all partitions always have the same leader, so it sends the next batch without waiting for the outcome
of those before it. A new leader that knows nothing of the producer would accept that batch as the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gateway.errors import KafkaError
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.requests.reply import Response
from protocol.kafka.batch import MAGIC_V2, BatchHeader, CorruptBatch, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import topic_key
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse

NO_EPOCH = -1


class ProduceOrder:
    """Keeps a client's batches in order: new leaders get batches only when all those to old leaders are answered."""

    def __init__(self, refused: RefusedBatches) -> None:
        self._refused = refused
        self._unanswered = 0
        self._drained: asyncio.Future[None] | None = None
        """Completed when everything is answered; None while nobody waits for that."""
        self._epoch = NO_EPOCH

    def is_drained(self, epoch: int) -> bool:
        """Everything that was sent before this epoch of the fleet is answered."""
        return epoch == self._epoch or not self._unanswered

    async def drained(self) -> None:
        """Wait until everything is answered."""
        if self._unanswered:
            self._drained = self._drained or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._drained])

    def sent(self, epoch: int) -> None:
        """A batch was sent in this epoch. Call `answered_one` when its outcome is known."""
        self._epoch = epoch
        self._unanswered += 1

    def sent_until(self, epoch: int, answer: asyncio.Future[Response] | None) -> None:
        """A batch was sent in this epoch. `answer` is None if the batch is answered already."""
        self._epoch = epoch
        if answer is not None:
            self._unanswered += 1
            answer.add_done_callback(lambda _: self.answered_one())

    def answered_one(self) -> None:
        """The outcome of a batch is known: a refused one was remembered."""
        self._unanswered -= 1
        if not self._unanswered and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def may_follow(self, request: ProduceRequest) -> bool:
        """False if the batches must not be forwarded before a refused batch was sent again."""
        if not self._refused:
            return True
        try:
            for topic, index, header in _sequenced(request):
                self._refused.check(topic, index, header)
        except KafkaError:
            return False
        return True

    def answered(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Remember the batches that a peer has refused."""
        codes = {
            (topic.name if topic.topic_id is None else str(topic.topic_id), row.index): row.error_code
            for topic in response.responses
            for row in topic.partition_responses
            if row.error_code
        }
        if codes:
            for topic, index, header in _sequenced(request):
                if (topic, index) in codes:
                    self._refused.refuse(topic, index, header, ErrorCode(codes[topic, index]))

    def lost(self, request: ProduceRequest) -> None:
        """The outcome is unknown. The batches count as refused: the client must send them again before any others."""
        for topic, index, header in _sequenced(request):
            self._refused.refuse(topic, index, header, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _sequenced(request: ProduceRequest) -> Iterator[tuple[str, int, BatchHeader]]:
    """The batches of idempotent producers."""
    for topic in request.topic_data:
        for row in topic.partition_data:
            try:
                header = parse_header(row.records) if row.records is not None else None
            except CorruptBatch:
                continue
            if header is not None and header.magic == MAGIC_V2 and header.producer_id >= 0:
                yield topic_key(topic), row.index, header
