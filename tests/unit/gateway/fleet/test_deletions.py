"""All gateways learn of deletions, also if the fleet's log cannot be written for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.membership import Membership
from coordinator.fleet.messages import Deletion, LogPosition, MalformedMessageError, Snapshot, decode_message
from coordinator.fleet.roster import Roster
from coordinator.topics import DeletedTopic
from gateway.config.gateway_config import FleetSection
from gateway.fleet import deletions
from gateway.fleet.fleet import Fleet
from gateway.fleet.fleet_log import FleetLog
from gateway.fleet.listener import FleetListener
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

TOPIC = DeletedTopic("t", b"i" * 16, 5)
SNAPSHOT = Snapshot(epoch=1, position=None, members=())


class FakeLog:
    def __init__(self) -> None:
        self.writable = False
        self.sent: list[Deletion] = []

    def send(self, message: Deletion) -> None:
        self.sent.append(message)


def scene() -> tuple[Fleet, FakeLog, list[DeletedTopic]]:
    fleet = Fleet(cast(PulsarClient, None), cast(AdminClient, None), "t/ns", FleetSection())
    roster = Roster(SNAPSHOT)
    roster.revision = -1  # as the fleet has it: nothing but deletions is read
    membership = SimpleNamespace(roster=roster, read=lambda *message: None, node_id_taken_by=None)
    log, heard = FakeLog(), list[DeletedTopic]()
    fleet._membership, fleet._log = cast(Membership, membership), cast(FleetLog, log)

    class Listener(FleetListener):
        def topics_deleted(self, topics: tuple[DeletedTopic, ...]) -> None:
            heard.extend(topics)

    fleet.subscribe(Listener())
    return fleet, log, heard


async def test_the_leaders_of_a_deleted_topic_are_forgotten() -> None:
    """Very many topics may be made and deleted while the members stay the same."""
    fleet, log, _ = scene()
    log.writable = True
    fleet.announce_deletion(TOPIC)
    fleet._announce()
    fleet.leader(TOPIC.name, 0)
    fleet.leader("kept", 0)
    membership = fleet._membership
    assert membership is not None
    fleet._read(LogPosition(1, 1), log.sent[0])
    assert [*membership.roster.placement._leaders] == ["kept"]


async def test_a_deletion_is_announced_until_it_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "SEND_AGAIN_S", 0)
    fleet, log, heard = scene()
    fleet.announce_deletion(TOPIC)
    assert log.sent == []
    log.writable = True
    fleet._announce()
    fleet._announce()
    assert len(log.sent) == 2, "the first may be lost"
    fleet._read(LogPosition(1, 1), log.sent[0])
    fleet._announce()
    assert len(log.sent) == 2
    assert heard == [TOPIC]


async def test_a_deletion_of_an_older_gateway_has_neither_id_nor_time() -> None:
    fleet, _, heard = scene()
    fleet._read(LogPosition(1, 1), Deletion(topics=("t",), snapshot=SNAPSHOT))
    assert [(each.name, each.topic_id) for each in heard] == [("t", b"")]
    assert heard[0].deleted_ms > 0


def test_ids_that_are_none_are_no_message() -> None:
    data = Deletion(topics=("t",), topic_ids={"t": "00" * 16}, snapshot=SNAPSHOT).model_dump_json()
    decode_message(data.encode())
    with pytest.raises(MalformedMessageError):
        decode_message(data.replace("00" * 16, "x").encode())
