"""Commits of one partition each, of simple consumers. They are answered in the next step, when they are stored."""

import struct
from typing import NamedTuple

from tests.bench.inside.scene import FakeClient, Scene
from tests.bench.loads.frames import LENGTH_BYTES, LoadError
from tests.support.raw_client import encode_request

COMMITS_PER_CONNECTION = 5
VERSION = 8
_OFFSET_MARK = 0x0123456789ABCDEF


class CommitCase(NamedTuple):
    in_flight: int

    @property
    def name(self) -> str:
        return f"commit from {self.in_flight}"


class CommitLoad:
    def __init__(self, scene: Scene, case: CommitCase) -> None:
        self._scene = scene
        self._topic = case.name.replace(" ", "-")
        scene.add_topic(self._topic)
        share = 1 if case.in_flight <= COMMITS_PER_CONNECTION else COMMITS_PER_CONNECTION
        self._clients = [scene.connect() for _ in range(case.in_flight // share)]
        self._frames = [self._frame(f"{self._topic}-{number}") for number in range(len(self._clients))]
        self._share = share
        self._offset = 0
        self._leads_groups = False

    def _frame(self, group: str) -> bytes:
        row = {
            "partition_index": 0, "committed_offset": _OFFSET_MARK, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        fields = {
            "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": self._topic, "partitions": [row]}],
        }  # fmt: skip
        payload = encode_request("OffsetCommit", VERSION, fields, correlation_id=0, client_id="bench")
        return len(payload).to_bytes(LENGTH_BYTES, "big") + payload

    def next_step(self) -> "CommitStep":
        """See ``Load``."""
        receipts = self._scene.broker.answers()
        if not self._leads_groups:
            return CommitStep(self._scene, receipts, [], 0)
        self._offset += 1
        offset = struct.pack(">q", self._offset)
        mark = struct.pack(">q", _OFFSET_MARK)
        frames = [frame.replace(mark, offset) * self._share for frame in self._frames]
        requests = list(zip(self._clients, frames, strict=True))
        return CommitStep(self._scene, receipts, requests, len(requests) * self._share)

    async def until_all_answered(self) -> None:
        """See ``Load``."""
        if not self._leads_groups:
            await self._scene.lead_groups()
            self._leads_groups = True
        await self._scene.until_answered(self._clients)
        for client in self._clients:
            if client.closed or any(any(answer[-6:]) for answer in map(bytes, client.received)):
                raise LoadError("a commit is refused")
            client.received.clear()


class CommitStep(NamedTuple):
    """The input of one step: bytes of the broker and of clients."""

    scene: Scene
    receipts: bytes
    requests: list[tuple[FakeClient, bytes]]
    batches: int

    async def run(self) -> None:
        if self.receipts:
            self.scene.broker.say(self.receipts)
        for client, data in self.requests:
            client.ask(data)
        await self.scene.run()


COMMIT_CASES = (CommitCase(5), CommitCase(200))
