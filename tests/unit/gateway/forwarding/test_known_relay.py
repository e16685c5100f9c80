"""Produce requests that differ from an earlier one only in their batch are forwarded without being decoded.

Their frames and answers are those of the general path, and the order of batches is kept in the same way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.requests.call import Call
from gateway.requests.reply import RelayedResponse, Reply, Response
from protocol.kafka.codec import decode_response, encode_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.forwarding.forwarding_scene import FakeRights, Scene
from tests.unit.gateway.forwarding.test_forwarder import written
from tests.unit.gateway.requests.test_routes import OTHERS

PRODUCE, VERSION = 0, 9
VERSIONS = range(5, 13)
_Topic = ProduceRequest.TopicProduceData


def request(number: int = 0, *, partition: int = 1, acks: int = -1, sequence: int = -1) -> ProduceRequest:
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
    data = encode_batch([Record(0, 1, None, b"%d" % number)], base_offset=0, **(producer if sequence >= 0 else {}))
    row = _Topic.PartitionProduceData(index=partition, records=memoryview(bytes(data)))
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[_Topic(name="t", partition_data=[row])]
    )


class FakePlace:
    """The place of a response, which it keeps."""

    def __init__(self) -> None:
        self.frame: bytes | None = None
        self.call: Call | None = None
        self.response: Response = None
        self.came: Reply | None = None

    def answer(self, *buffers: Any) -> None:
        self.frame = b"".join(map(bytes, buffers))[4:]

    def respond(self, call: Call, response: Response) -> None:
        self.call, self.response = call, response

    def reply(self, call: Call, reply: Reply) -> None:
        self.call, self.came = call, reply

    async def code(self, version: int = VERSION) -> int:
        """The error code of the general path's response."""
        assert self.came is not None
        response: Any = await self.came.result()
        if isinstance(response, RelayedResponse):
            response = decode_response(ProduceResponse, version, memoryview(response.frame))
        return int(response.responses[0].partition_responses[0].error_code)


class Client:
    """Its first request took the general path, and is answered."""

    def __init__(self, scene: Scene, version: int = VERSION, **first: int) -> None:
        self.scene, self.version = scene, version
        for _ in range(2):  # the first one opens the link
            asked = scene.ask(PRODUCE, version, request(**first))
            assert asked.reply is not None
            scene.links[1].answer(len(scene.links[1].sent) - 1, version, written({1: 0}))

    def sends(self, number: int, **changes: int) -> FakePlace | None:
        """None if the request has to take the general path."""
        place = FakePlace()
        encoded = encode_request(ProduceRequest, self.version, number, "c", request(number, **changes))
        frame = bytearray(b"".join(map(bytes, encoded))[4:])
        context = self.scene.begin(PRODUCE, self.version, request()).context
        return place if self.scene.forwarder.handle_known(frame, context, cast(Any, place)) else None


@pytest.mark.parametrize("version", VERSIONS)
async def test_frames_and_answers_are_those_of_the_general_path(version: int) -> None:
    client = Client(Scene(), version)
    link = client.scene.links[1]
    await let_callbacks_run()
    place = client.sends(30)
    assert place is not None
    general = client.scene.ask(PRODUCE, version, request(30), correlation_id=30)
    relayed, decoded = link.sent[-2:]
    assert (relayed[:4], relayed[8:]) == (decoded[:4], decoded[8:])
    answer = written({1: 0})
    for position in (-2, -1):
        link.answer(len(link.sent) + position, version, answer)
    assert place.frame == await general.answer()


async def test_answers_may_come_in_another_order() -> None:
    client = Client(Scene())
    first, second = client.sends(30), client.sends(31)
    assert first is not None and second is not None
    link = client.scene.links[1]
    link.answer(len(link.sent) - 1, VERSION, written({1: 0}))
    assert (first.frame, second.frame is None) == (None, False)
    link.answer(len(link.sent) - 2, VERSION, written({1: 0}))
    assert [each.frame and int.from_bytes(each.frame[:4], "big") for each in (first, second)] == [30, 31]


async def test_a_refused_batch_is_answered_and_remembered() -> None:
    client = Client(Scene(), sequence=0)
    place = client.sends(30, sequence=1)
    assert place is not None
    link = client.scene.links[1]
    link.answer(len(link.sent) - 1, VERSION, written({1: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
    assert await place.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.scene.client.refused
    assert client.sends(31, sequence=2) is None, "the general path decides what may follow"


async def test_a_lost_leader_is_answered_as_on_the_general_path() -> None:
    client = Client(Scene(), sequence=0)
    place = client.sends(30, sequence=1)
    assert place is not None
    client.scene.links[1].lose()
    assert await place.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.scene.client.refused
    assert client.sends(31, sequence=2) is None


async def test_a_new_leader_gets_batches_when_those_to_the_old_one_are_answered() -> None:
    client = Client(Scene())
    scene, link = client.scene, client.scene.links[1]
    await let_callbacks_run()
    place = client.sends(30)
    assert place is not None
    scene.fleet.epoch, scene.fleet.leaders[1] = 2, OTHERS[1]
    assert client.sends(31) is None, "no link to the new leader"
    asked = scene.ask(PRODUCE, VERSION, request(32))
    assert asked.serial
    await let_callbacks_run()
    assert 2 not in scene.links
    link.answer(len(link.sent) - 1, VERSION, written({1: 0}))
    await let_callbacks_run()
    assert place.frame is not None
    assert len(scene.links[2].sent) == 1
    assert client.sends(33) is not None
    assert len(scene.links[2].sent) == 2


async def test_batches_wait_for_a_refusal_that_is_not_complete() -> None:
    client = Client(Scene())
    scene = client.scene
    await let_callbacks_run()
    assert client.sends(30) is not None
    scene.links[1].lose()  # its refusal is being prepared
    scene.fleet.epoch = 2
    asked = scene.ask(PRODUCE, VERSION, request(31))
    assert asked.serial


async def test_topics_that_only_the_leader_knows() -> None:
    """Behind a load balancer, a client may get metadata from one gateway, and write through another one."""
    scene = Scene()
    scene.knows_topics = False
    assert Client(scene).sends(30) is not None


async def test_what_takes_the_general_path() -> None:
    rights = FakeRights()
    client = Client(Scene(rights))
    scene = client.scene
    assert client.sends(30) is not None
    for changes in ({"partition": 2}, {"acks": 0}, {"partition": 3}):
        assert client.sends(31, **changes) is None, changes
    scene.links[1].room.clear()
    assert client.sends(32) is None, "the link has no room"
    scene.links[1].room.set()
    assert client.sends(33) is not None
    rights.deny("t")
    assert client.sends(34) is None
    assert not scene.forwarder.handle_known(bytearray(b"\0"), scene.begin(PRODUCE, VERSION, request()).context, None)  # type: ignore[arg-type]


async def test_bytes_after_the_batch_take_the_general_path() -> None:
    client = Client(Scene())
    context = client.scene.begin(PRODUCE, VERSION, request()).context
    encoded = encode_request(ProduceRequest, VERSION, 30, "c", request(30))
    frame = bytearray(b"".join(map(bytes, encoded))[4:]) + b"\0"
    assert not client.scene.forwarder.handle_known(frame, context, cast(Any, FakePlace()))


async def test_the_request_of_a_client_that_disconnects_is_charged() -> None:
    client = Client(Scene())
    place = client.sends(30)
    assert place is not None
    client.scene.forwarder.close()
    assert place.call is not None and place.response is None and place.came is None
    charged: Any = place.call.request
    assert charged.topic_data[0].partition_data[0].records is not None


async def test_a_client_over_its_quota_is_charged_on_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Scene())
    within = [True, False]
    charges = SimpleNamespace(charge_within=lambda size_bytes, busy_s: within.pop(0))
    known: Any = client.scene.forwarder
    monkeypatch.setattr(known._known._batches._last, "charges", charges)
    places = [client.sends(30), client.sends(31)]
    link = client.scene.links[1]
    for position in (-2, -1):
        link.answer(len(link.sent) + position, VERSION, written({1: 0}))
    first, second = places
    assert first is not None and second is not None
    assert first.frame is not None
    assert second.frame is None and isinstance(second.response, RelayedResponse)
