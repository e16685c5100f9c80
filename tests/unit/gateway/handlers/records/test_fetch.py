"""Consumers that the leader redirects to the gateway of their rack (KIP-392), and those that may no longer read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gateway.config.limits import Limits
from gateway.fetching.fetch_session import FetchedPartition
from gateway.fetching.fetch_waits import FetchWaits
from gateway.handlers.records import fetch
from gateway.requests.cluster import Unread
from gateway.requests.context import Client, Listener
from gateway.requests.policy import ALL_ALLOWED, AllAllowed, Policy
from gateway.requests.reply import Reply
from protocol.kafka.acl import AclOperation
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.fetching.delayed_fetch_scene import FakeLog
from tests.unit.gateway.requests.test_brokers import OWN, racked_fleet

READER = 2


async def fetched(offset: int, *, rack: str = "b", opened: bool = True, doubtful: bool = False) -> tuple[Any, FakeLog]:
    """The row of a partition that this gateway leads, and its log from 5 to 9."""
    reply, log = ask(offset, rack=rack, opened=opened, doubtful=doubtful)
    return await row(reply), log


async def row(reply: Reply) -> Any:
    async with asyncio.timeout(5):
        answer = await reply.result()
    return cast(Any, answer).responses[0].partitions[0]


def ask(
    offset: int, *, rack: str = "", opened: bool = True, doubtful: bool = False, max_wait_ms: int = 0,
    policy: Policy = ALL_ALLOWED, partition: int = OWN, replica_id: int = -1,
) -> tuple[Reply, FakeLog]:  # fmt: skip
    log = FakeLog(9)
    log.start = SimpleNamespace(offset=5, refresh_ahead=Mock())
    log.refresh.set_result(None)
    logs = SimpleNamespace(find=lambda *_: log if opened else None, open=lambda *_, **__: asyncio.sleep(0, log))
    topic = SimpleNamespace(name="t", partitions=READER + 1)
    fleet = racked_fleet({OWN: "a", READER: "b"})
    if doubtful:
        cast(Any, fleet._membership).holds_lease = lambda _now_ms: False
    cluster = SimpleNamespace(
        config=SimpleNamespace(limits=Limits(), kafka=SimpleNamespace(rack="a")), unread=Unread(), logs=logs,
        fleet=fleet, node_id=OWN, fetch_waits=FetchWaits(),
        topics=SimpleNamespace(cached=lambda _: topic, get=lambda _: asyncio.sleep(0, topic)),
    )  # fmt: skip
    request = SimpleNamespace(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_epoch=-1, rack_id=rack,
        replica_id=replica_id, replica_state=None, topics=[],
    )  # fmt: skip
    context = SimpleNamespace(listener=Listener("inside"), policy=policy)
    call = SimpleNamespace(
        request=request, frame=None, version=12, cluster=cluster, topics=cluster.topics, context=context,
        client_id="test", count_error=lambda code: None, audit_denied=lambda *right: None,
        client=Client("c"),
    )  # fmt: skip
    part = FetchedPartition("t", partition, offset, 1 << 20, -1, -1)
    return fetch.fetch(cast(Any, call), [part], None), log


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("offset", [5, 8, 9])
async def test_a_consumer_is_sent_to_its_rack(offset: int, opened: bool) -> None:
    row, log = await fetched(offset, opened=opened)
    assert (row.error_code, row.preferred_read_replica, row.records.size_bytes) == (ErrorCode.NONE, READER, 0)
    assert (row.log_start_offset, row.last_stable_offset, row.high_watermark) == (5, 9, 9), "as in Kafka"
    assert not log.follows_leader
    log.start.refresh_ahead.assert_called_once()


@pytest.mark.parametrize("rack", ["a", "c", ""])
async def test_others_read_from_the_leader(rack: str) -> None:
    row, _ = await fetched(8, rack=rack)
    assert row.preferred_read_replica == -1 and row.records.size_bytes > 0


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("offset", [4, 10])
async def test_the_leader_itself_says_that_an_offset_is_out_of_range(offset: int, opened: bool) -> None:
    """A consumer that gets the error from another gateway retries at the leader, before it resets its offset."""
    row, _ = await fetched(offset, opened=opened)
    assert (row.error_code, row.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(("offset", "times"), [(5, 1), (8, 1), (9, 0)])
async def test_a_reader_looks_for_what_the_leader_has_deleted(offset: int, times: int, opened: bool) -> None:
    """Nobody asks it for the start of the log."""
    reply, log = ask(offset, rack="a", opened=opened, partition=READER)
    found = await row(reply)
    assert (found.error_code, found.preferred_read_replica) == (ErrorCode.NONE, -1)
    assert log.start.refresh_ahead.call_count == times
    assert log.follows_leader


async def test_one_that_may_not_lead_any_more_calls_no_offset_out_of_range() -> None:
    """It may not know what its successor wrote: the client must not reset its offset for that."""
    row, _ = await fetched(10, rack="", doubtful=True)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class Revocable(AllAllowed):
    revoked = False

    def allows(self, operation: object, resource_type: object, name: str) -> bool:
        return not self.revoked


@pytest.mark.parametrize("opened", [True, False])
async def test_a_right_is_lost_while_a_fetch_waits(opened: bool) -> None:
    policy = Revocable()
    reply, log = ask(9, max_wait_ms=60_000, policy=policy, opened=opened)
    assert reply.future is not None
    while not log.waiters:
        await asyncio.sleep(0)
    policy.revoked = True
    log.move()
    denied = await row(reply)
    assert (denied.error_code, denied.records.size_bytes) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    assert denied.high_watermark == -1


class Only(AllAllowed):
    def __init__(self, operation: AclOperation) -> None:
        self._operation = operation

    def allows(self, operation: object, resource_type: object, name: str) -> bool:
        return operation is self._operation


@pytest.mark.parametrize(
    ("operation", "replica_id", "expected"),
    [
        (AclOperation.READ, -1, ErrorCode.NONE),
        (AclOperation.READ, 5, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AclOperation.CLUSTER_ACTION, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AclOperation.CLUSTER_ACTION, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_who_fetches_as_a_broker_needs_the_right_of_brokers(
    operation: AclOperation, replica_id: int, expected: ErrorCode
) -> None:
    reply, _ = ask(8, policy=Only(operation), replica_id=replica_id)
    assert (await row(reply)).error_code == expected
