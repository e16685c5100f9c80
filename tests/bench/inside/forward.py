"""Produce requests of one batch each that reach a gateway at a single address, and are forwarded to their leader.

The connections take turns, as in `produce`. Instead of a leader, the scene answers, some steps later.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from coordinator.fleet.messages import Address, Member
from gateway.forwarding.peers import READ_BUFFER_BYTES, PeerLink
from protocol.kafka.handwritten.produce_response import encode_written
from protocol.kafka.messages.records import ProduceResponse
from tests.bench.inside.scene import ANSWERED_S, SINGLE_ADDRESS, FakeClient, Scene, feed
from tests.bench.loads.frames import (
    CORRELATION_AT,
    LENGTH_BYTES,
    PRODUCE_VERSION,
    LoadError,
    ProduceFrames,
    record_batch,
)

CONNECTIONS, REQUESTS_PER_CONNECTION = 4, 5
STEPS_ON_THE_WAY = 3
TOPIC = "forwarded"
LEADER = Member(
    node_id=1, incarnation="leader", instance="leader", addresses={}, forwarding=Address(host="127.0.0.1", port=9095),
    lease_ms=600_000, started_ms=0,
)  # fmt: skip
_ID = struct.Struct(">i")
_Topic = ProduceResponse.TopicProduceResponse
_ROW = _Topic.PartitionProduceResponse(
    index=0, error_code=0, base_offset=7, log_append_time_ms=-1, log_start_offset=0, record_errors=[],
    error_message=None,
)  # fmt: skip
ANSWER = encode_written(PRODUCE_VERSION, 0, [_Topic(name=TOPIC, partition_responses=[_ROW])])


class ForwardCase(NamedTuple):
    records: int

    @property
    def name(self) -> str:
        return f"forward {self.records} from {CONNECTIONS * REQUESTS_PER_CONNECTION}"


class ForwardLoad:
    """Load on one topic, which another gateway leads."""

    def __init__(self, _scene: Scene, case: ForwardCase) -> None:
        scene = Scene(None, **SINGLE_ADDRESS)
        scene.fleet.leader = lambda topic, partition: LEADER  # type: ignore[method-assign]
        scene._services._peers.open = self._open  # type: ignore[method-assign]
        self._scene = scene
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._leaders: list[FakeLeader] = []
        self._frames = ProduceFrames(TOPIC, record_batch(case.records))
        self._clients = deque(scene.connect() for _ in range(CONNECTIONS))
        self._answers: deque[list[tuple[FakeLeader, bytes]]] = deque([[]] * STEPS_ON_THE_WAY)

    def _open(self, member: Member, client_address: str | None, on_lost: Any, principal: str | None = None) -> PeerLink:
        leader = FakeLeader(member, client_address, self._buffer, on_lost)
        self._leaders.append(leader)
        return leader

    def next_step(self) -> "ForwardStep":
        """See ``Load``."""
        self._answers.append([(leader, leader.answers()) for leader in self._leaders])
        client = self._clients[0]
        self._clients.rotate(-1)
        requests = b"".join(part for number in range(REQUESTS_PER_CONNECTION) for part in self._frames.request(number))
        return ForwardStep(self._scene, self._answers.popleft(), client, requests)

    async def until_all_answered(self) -> None:
        """See ``Load``."""
        for answers in self._answers:
            for leader, data in answers:
                leader.say(data)
            answers.clear()
        async with asyncio.timeout(ANSWERED_S):
            while not all(client.connection.idle for client in self._clients):
                for leader in self._leaders:
                    leader.say(leader.answers())
                await asyncio.sleep(0)
        for client in self._clients:
            self._check_answers(client)

    def _check_answers(self, client: FakeClient) -> None:
        if client.closed:
            raise LoadError("the gateway has closed a connection")
        data = memoryview(b"".join(client.received))
        client.received.clear()
        while data:
            self._frames.base_offset(data)
            data = data[LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big") :]


class ForwardStep(NamedTuple):
    """The input of one step: answers of the leader, and requests of one client."""

    scene: Scene
    answers: list[tuple["FakeLeader", bytes]]
    client: FakeClient
    requests: bytes

    @property
    def batches(self) -> int:
        return REQUESTS_PER_CONNECTION

    async def run(self) -> None:
        for leader, data in self.answers:
            leader.say(data)
        self.client.ask(self.requests)
        await self.scene.run()


class FakeLeader(PeerLink):
    """A client's link to a leader, which answers when the scene says so."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = FakeSocket()

    async def _open(self) -> None:
        self.connection_made(self.asked)

    def answers(self) -> bytes:
        """To all requests since the last call."""
        data, position, answers = self.asked.taken(), 0, []
        while position < len(data):
            (number,) = _ID.unpack_from(data, position + CORRELATION_AT)
            answers.append(ANSWER[:LENGTH_BYTES] + _ID.pack(number) + ANSWER[LENGTH_BYTES + _ID.size :])
            position += LENGTH_BYTES + _ID.unpack_from(data, position)[0]
        return b"".join(answers)

    def say(self, data: bytes) -> None:
        feed(self, data)


class FakeSocket(asyncio.Transport):
    """Keeps what is sent to a leader."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.sent: list[bytes] = []

    def write(self, data: Any) -> None:
        """Nothing but the PROXY header is written alone."""

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.sent += list_of_data

    def taken(self) -> bytes:
        sent, self.sent = b"".join(self.sent), []
        return sent

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.get_extra_info("socket").close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no limit."""


FORWARD_CASES = (ForwardCase(10), ForwardCase(160))
