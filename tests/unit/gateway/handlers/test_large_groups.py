"""Requests about many groups or transactions are processed in slices: other tasks run in between."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from coordinator.group.messages import DescribedConsumerGroup, DescribedGroup, SyncRequest, SyncResponse
from coordinator.transaction.messages import AddPartitionsRequest, DescribedTransaction, VerifyPartitionsResponse
from gateway import fan_out
from gateway.coordination.partition.coordinators import Coordinators
from gateway.handlers.groups import consumer_group_describe, describe_groups, sync_group
from gateway.handlers.transactions import add_partitions_to_txn, describe_transactions
from gateway.requests.policy import ALL_ALLOWED
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import SyncGroupResponse
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

T = TypeVar("T")
NAMES = [f"n{number}" for number in range(5)]


class Coordinator:
    """Answers everything, and counts its answers."""

    def __init__(self) -> None:
        self.answers = 0

    def describe_group(self, group_id: str) -> DescribedGroup:
        self.answers += 1
        return DescribedGroup(ErrorCode.NONE, group_id, "Empty")

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        self.answers += 1
        return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, group_id)

    def verify_partitions(self, asked: AddPartitionsRequest) -> VerifyPartitionsResponse:
        self.answers += 1
        return dict.fromkeys(asked.partitions, ErrorCode.NONE)

    def describe(self, name: str) -> DescribedTransaction:
        self.answers += 1
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)


def asked(coordinator: Coordinator, version: int = 3, **fields: Any) -> Any:
    coordinators = SimpleNamespace(run=lambda key, ask: ask(coordinator, 0))
    return SimpleNamespace(
        cluster=SimpleNamespace(groups=coordinators, transactions=coordinators),
        context=SimpleNamespace(policy=ALL_ALLOWED), version=version, count_error=lambda code: None,
        request=SimpleNamespace(include_authorized_operations=False, **fields),
    )  # fmt: skip


async def verify(call: Any) -> None:
    """Another gateway's question about several transactions."""
    row = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    transactions = [
        row(
            transactional_id=name, producer_id=1, producer_epoch=0, verify_only=True,
            topics=[row.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        for name in NAMES
    ]  # fmt: skip
    call.request, call.version = AddPartitionsToTxnRequest(transactions=transactions), 5
    call.cluster.topics = SimpleNamespace(
        cached=lambda name: SimpleNamespace(partitions=1, topic_id=SimpleNamespace(bytes=b""))
    )
    response = await add_partitions_to_txn.handle(call).result()
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert [row.transactional_id for row in response.results_by_transaction] == NAMES


@pytest.mark.parametrize(
    ("handle", "fields", "count"),
    [
        (describe_groups.handle, {"groups": NAMES}, 5),
        (consumer_group_describe.handle, {"group_ids": NAMES}, 5),
        (describe_transactions.handle, {"transactional_ids": NAMES}, 5),
        (verify, {}, 5),
    ],
)
async def test_other_tasks_run_in_between(
    monkeypatch: pytest.MonkeyPatch,
    handle: Callable[[Any], Coroutine[Any, Any, Any]],
    fields: dict[str, Any],
    count: int,
) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    coordinator = Coordinator()
    task = asyncio.create_task(handle(asked(coordinator, **fields)))
    seen = []
    while not task.done():
        seen.append(coordinator.answers)
        await asyncio.sleep(0)
    assert set(range(count + 1)) <= {*seen, coordinator.answers}


class Assignment:
    """Counts how many have been read."""

    read = 0

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id

    @property
    def assignment(self) -> memoryview:
        Assignment.read += 1
        return memoryview(self.member_id.encode())


class Group:
    def sync(self, asked: SyncRequest, now_ms: int, reply: Callable[[SyncResponse], None]) -> None:
        assert asked.assignments == {name: name.encode() for name in NAMES}
        reply(SyncResponse(ErrorCode.NONE, assignment=asked.assignments[asked.member_id]))


class Groups(Coordinators[Any]):
    def run(self, key: str, call: Callable[[Any, int], T]) -> T:
        return call(Group(), 0)

    def leads(self, number: int) -> bool:
        return True


async def test_the_assignments_of_a_large_group_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(sync_group, "AT_ONCE", 1)
    monkeypatch.setattr(Assignment, "read", 0)
    request = SimpleNamespace(
        group_id="g", generation_id=1, member_id=NAMES[3], group_instance_id=None, protocol_type="consumer",
        protocol_name="range", assignments=[Assignment(name) for name in NAMES],
    )  # fmt: skip
    call: Any = SimpleNamespace(cluster=SimpleNamespace(groups=Groups()), request=request, version=5, frame=None)
    task = asyncio.create_task(sync_group.handle(call).result())
    seen = set()
    while not task.done():
        seen.add(Assignment.read)
        await asyncio.sleep(0)
    assert seen >= {*range(len(NAMES))}
    response = task.result()
    assert isinstance(response, SyncGroupResponse)
    assert response.assignment == NAMES[3].encode()
