"""A log of heartbeats, some of which have a snapshot of the fleet: who writes one, and how a gateway that starts finds
the last.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.messages import (
    NO_TRANSACTIONS,
    Goodbye,
    Heartbeat,
    LogPosition,
    Member,
    MemberState,
    Message,
    Snapshot,
    decode_message,
    encode_message,
)
from gateway.fleet import fleet_log
from gateway.fleet.fleet_log import LOOK_BACK_ENTRIES, FleetLog
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.pulsar import entry as pulsar_entry
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

MEMBER = Member(
    node_id=1, incarnation="i", instance="g:1", addresses={}, lease_ms=2_000, started_ms=0, transaction_version=2
)
STATE = MemberState(member=MEMBER, sequence=1, drained_epoch=1)


def snapshot(epoch: int) -> Snapshot:
    return Snapshot(epoch=epoch, position=LogPosition(7, 0), members=(STATE,))


def heartbeat(epoch: int | None = None) -> Heartbeat:
    return Heartbeat(state=STATE, snapshot=None if epoch is None else snapshot(epoch))


class Log:
    """The entries that a `FleetLog` writes and reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, written: Iterable[bytes] = ()) -> None:
        self.texts = list(written)
        self.reads: list[object] = []
        self.log = FleetLog(cast(PulsarClient, self), "t", lambda position, message: None)
        self.log._producer = cast(Any, SimpleNamespace(send=self._send))
        monkeypatch.setattr(fleet_log, "read_entries", self._read)

    async def last_position(self, _topic: str) -> Position:
        return Position(7, len(self.texts) - 1)

    def send(self, message: Message) -> Message:
        """As it is in the log."""
        self.log.send(message)
        return decode_message(self.texts[-1])

    def deliver(self) -> None:
        """The last entry."""
        self.log.on_entry(self._entry(len(self.texts) - 1))

    def _send(self, data: tuple[bytes], **_: object) -> None:
        [message] = pulsar_entry.iter_messages(MessageMetadata(num_messages_in_batch=1), data[0], 1 << 20)
        self.texts.append(bytes(message.value or b""))

    async def _read(self, _client: object, _topic: str, start: object, last: Position) -> AsyncGenerator[Entry, None]:
        self.reads.append(start)
        for number in range(start.entry_id if isinstance(start, Position) else 0, last.entry_id + 1):
            yield self._entry(number)

    def _entry(self, number: int) -> Entry:
        return Entry(Position(7, number), None, MessageMetadata(), memoryview(self.texts[number]))


async def test_a_heartbeat_has_a_snapshot_if_none_was_read_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_log, "SNAPSHOT_EVERY_S", 60)
    log = Log(monkeypatch)
    assert log.send(heartbeat(1)) == heartbeat(1)
    assert log.send(heartbeat(2)) == heartbeat(2), "not read yet, so perhaps lost"
    log.deliver()
    assert log.send(heartbeat(3)) == heartbeat()
    log.deliver()
    goodbye = Goodbye(node_id=1, incarnation="i", snapshot=snapshot(4))
    assert log.send(goodbye) == goodbye, "it may be the last entry for years"
    monkeypatch.setattr(fleet_log, "SNAPSHOT_EVERY_S", 0.01)
    await asyncio.sleep(0.02)
    assert log.send(heartbeat(5)) == heartbeat(5)


async def test_older_gateways_cannot_read_a_heartbeat_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_log, "SNAPSHOT_EVERY_S", 60)
    older = STATE.model_copy(update={"member": MEMBER.model_copy(update={"transaction_version": NO_TRANSACTIONS})})
    log = Log(monkeypatch)
    log.send(heartbeat(1))
    log.deliver()
    for members in ((STATE, older), (STATE,)):
        fleet = Snapshot(epoch=1, position=LogPosition(7, 0), members=members)
        sent = log.send(Heartbeat(state=STATE, snapshot=fleet))
        assert sent.snapshot == (fleet if older in members else None)


@pytest.mark.parametrize(
    ("behind", "reads"),
    [
        (0, 1),
        (1, 2),
        (LOOK_BACK_ENTRIES, 2),
        (LOOK_BACK_ENTRIES + 1, 3),
    ],
)
async def test_the_last_snapshot_is_found(behind: int, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [encode_message(each) for each in (heartbeat(1), heartbeat(), heartbeat(2), *[heartbeat()] * behind)]
    log = Log(monkeypatch, texts)
    assert await log.log.open() == snapshot(2)
    assert len(log.reads) == reads
    assert log.log._start == Position(7, 0), "the rest is read from the snapshot's own position"


async def test_what_no_gateway_wrote_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, [encode_message(heartbeat(1)), b"{}", b"hello"])
    assert await log.log.open() == snapshot(1)


async def test_a_log_without_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await Log(monkeypatch, [b"hello"]).log.open() is None
