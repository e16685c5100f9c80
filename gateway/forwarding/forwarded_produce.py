"""The batches of an idempotent producer that come by a single address, while the leaders behind it change.

To its client all partitions have one leader for ever, so it sends the next batch without waiting for what became of
those before it. A new leader that knows nothing of the producer would take it for the first.
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
    """Of one client. Batches go to new leaders when all is answered that went to the old ones, and not out of turn."""

    def __init__(self, refused: RefusedBatches) -> None:
        self._refused = refused
        self._unanswered: set[asyncio.Future[Response]] = set()
        self._epoch = NO_EPOCH

    def is_drained(self, epoch: int) -> bool:
        """Of what was sent before this epoch of the fleet, all is answered."""
        return epoch == self._epoch or not self._unanswered

    async def drained(self) -> None:
        await asyncio.wait(self._unanswered)

    def sent(self, epoch: int, answer: asyncio.Future[Response] | None) -> None:
        """A batch is on its way; its answer comes, or is there."""
        self._epoch = epoch
        if answer is not None:
            self._unanswered.add(answer)
            answer.add_done_callback(self._unanswered.discard)

    def may_follow(self, request: ProduceRequest) -> bool:
        """False if a batch must not be passed on before one that was refused has come again."""
        if not self._refused:
            return True
        try:
            for topic, index, header in _sequenced(request):
                self._refused.check(topic, index, header)
        except KafkaError:
            return False
        return True

    def answered(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """By a peer."""
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
        """Nobody knows what became of it: it has to come again, and is refused before anything else is passed on."""
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
