"""An idempotent producer at a single address, while its partition moves and leaders are lost: nothing is overtaken."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from gateway.errors import KafkaError
from gateway.log.writing.refused_batches import RefusedBatches
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.codec import decode_response, encode_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.forwarding.forwarding_scene import FakeLink, Scene
from tests.unit.gateway.forwarding.test_forwarder import written
from tests.unit.gateway.forwarding.test_known_relay import PRODUCE, VERSION, FakePlace, request
from tests.unit.gateway.requests.test_routes import OTHERS

STEPS = 80
IN_FLIGHT = 5


class Producer:
    """Kafka's producer: it sends the batches that were refused again, in order, before others."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.acknowledged: list[int] = []
        self.known = 0
        self._next = 0
        self._again: list[int] = []
        self._in_flight: list[tuple[int, asyncio.Task[int]]] = []
        self._serial: Any = None

    def may_send(self) -> bool:
        return len(self._in_flight) < IN_FLIGHT and not (self._serial is not None and self._serial.serial)

    def send(self) -> None:
        if self._again:
            sequence = self._again.pop(0)
        else:
            sequence, self._next = self._next, self._next + 1
        place, asked = FakePlace(), request(sequence, sequence=sequence)
        encoded = encode_request(ProduceRequest, VERSION, sequence, "c", asked)
        context = self.scene.begin(PRODUCE, VERSION, request()).context
        frame = bytearray(b"".join(map(bytes, encoded))[4:])
        if self.scene.forwarder.handle_known(frame, context, cast(Any, place)):
            self.known += 1
            answered = self._of_place(place)
        else:
            self._serial = self.scene.ask(PRODUCE, VERSION, asked, sequence)
            answered = self._of_request(self._serial)
        self._in_flight.append((sequence, asyncio.ensure_future(answered)))

    async def _of_place(self, place: FakePlace) -> int:
        while place.frame is None and place.came is None:
            await asyncio.sleep(0)
        if place.frame is None:
            return await place.code()
        response = decode_response(ProduceResponse, VERSION, memoryview(place.frame))
        return response.responses[0].partition_responses[0].error_code

    async def _of_request(self, asked: Any) -> int:
        response = await asked.decoded()
        return int(response.responses[0].partition_responses[0].error_code)

    def take_answers(self) -> None:
        """In the order of the requests, as the connection writes them."""
        while self._in_flight and self._in_flight[0][1].done():
            sequence, answered = self._in_flight.pop(0)
            if answered.result() in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                self.acknowledged.append(sequence)
            else:
                assert answered.result() in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                self._again = sorted([*self._again, sequence])


class History:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.scene = Scene()
        self.producer = Producer(self.scene)
        self.log: list[int] = []
        self.leader = 1
        """The node that leads the partition; the gateway may not know yet."""
        self._links: list[FakeLink] = []
        self._taken: dict[FakeLink, int] = {}
        self._refused: dict[FakeLink, RefusedBatches] = {}
        """Of the leaders."""

    def step(self) -> None:
        random, drawn = self._random, self._random.random()
        self._links += [link for link in self.scene.links.values() if link not in self._links]
        if drawn < 0.4:
            if self.producer.may_send():
                self.producer.send()
        elif drawn < 0.8:
            self._handle_next()
        elif drawn < 0.85:
            self.leader = random.choice([1, 2])
        elif drawn < 0.9:
            self._tell()
        elif drawn < 0.93:
            self._lose()
        elif drawn < 0.96:
            self.scene.blocked = not self.scene.blocked
        else:
            for link in self._links:
                link.room.set()
        self.producer.take_answers()

    def _tell(self) -> None:
        """The gateway learns who leads."""
        self.scene.fleet.epoch += 1
        self.scene.fleet.leaders[1] = next(each for each in OTHERS if each.node_id == self.leader)

    def _lose(self) -> None:
        """Together with the responses to the last batches, which were or were not written."""
        for link in [each for each in self._links if not each.lost][:1]:
            for _ in range(self._random.randrange(3)):
                self._handle(link, is_answered=False)
            link.lose()
            link.room.set()

    def _handle_next(self) -> None:
        waiting = [link for link in self._links if not link.lost and self._taken.get(link, 0) < len(link.sent)]
        if waiting:
            self._handle(self._random.choice(waiting), is_answered=True)

    def _handle(self, link: FakeLink, *, is_answered: bool) -> None:
        position = self._taken.get(link, 0)
        if position >= len(link.sent):
            return
        self._taken[link] = position + 1
        code = self._append(link)
        if is_answered:
            link.answer(position, VERSION, written({1: code}))

    def _append(self, link: FakeLink) -> int:
        """As long as the log has none of the producer's batches, a leader accepts any of them as the first one."""
        header = self._header(link.sent[self._taken[link] - 1])
        sequence, refused = header.base_sequence, self._refused.setdefault(link, RefusedBatches())
        try:
            if link.member.node_id != self.leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refused.check("t", 1, header, self)
        except KafkaError as error:
            refused.refuse("t", 1, header, error.code)
            return error.code
        if sequence in self.log:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if self.log and sequence != self.log[-1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.log.append(sequence)
        return ErrorCode.NONE

    def has_passed(self, _header: BatchHeader, sequence: int) -> bool:
        return sequence in self.log

    def _header(self, frame: bytes) -> BatchHeader:
        context = self.scene.begin(PRODUCE, VERSION, request()).context
        asked: Any = self.scene._dispatcher.begin(bytearray(frame), context).request
        return parse_header(asked.topic_data[0].partition_data[0].records)

    async def end(self) -> None:
        """Everything works again: what the client has sent is written."""
        self._tell()
        self.scene.blocked = False
        for _ in range(300):
            self._links += [link for link in self.scene.links.values() if link not in self._links]
            for link in self._links:
                link.room.set()
            self._handle_next()
            await let_callbacks_run()
            self.producer.take_answers()
            if self.producer._again and self.producer.may_send():
                self.producer.send()
        assert not self.producer._in_flight and not self.producer._again


@pytest.mark.parametrize("seed", range(60))
async def test_any_history(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(STEPS):
        history.step()
        await let_callbacks_run()
        assert history.log == [*range(len(history.log))]
    await history.end()
    assert history.log == [*range(len(history.log))] and {*history.producer.acknowledged} == {*history.log}
