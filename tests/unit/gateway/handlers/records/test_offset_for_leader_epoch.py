"""The end of a log is returned when no former leader writes to it any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.handlers.records import offset_for_leader_epoch
from protocol.kafka.errors import ErrorCode


async def told(monkeypatch: pytest.MonkeyPatch, takeover: list[bool]) -> Any:
    """For a log that ends at 7; the gateway may lead it as the list says, and later as its last item."""
    monkeypatch.setattr(offset_for_leader_epoch, "TAKEN_OVER_CHECK_S", 0)

    def role(_topic: str, _partition: int) -> PartitionRole:
        leads = takeover.pop(0) if len(takeover) > 1 else takeover[0]
        return PartitionRole.LEADING if leads else PartitionRole.TAKING_OVER

    log = SimpleNamespace(end=SimpleNamespace(refresh=AsyncMock()), written_offset=7)
    cluster = SimpleNamespace(
        topics=SimpleNamespace(with_partition=AsyncMock(return_value=SimpleNamespace(partitions=1))),
        fleet=SimpleNamespace(leads=lambda *_: True, role=role, epoch=3),
        logs=SimpleNamespace(open=AsyncMock(return_value=log)),
    )
    asked = SimpleNamespace(partition=0, current_leader_epoch=3, leader_epoch=0)
    request = SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[asked])])
    call = SimpleNamespace(
        request=request, cluster=cluster, topics=cluster.topics, client=SimpleNamespace(number=1),
        count_error=lambda _: None,
    )  # fmt: skip
    answer = await offset_for_leader_epoch.handle(cast(Any, call))
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("takeover", [[True], [False, False, True]])
async def test_the_leader_returns_the_end(monkeypatch: pytest.MonkeyPatch, takeover: list[bool]) -> None:
    row = await told(monkeypatch, takeover)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.NONE, 0, 7)


async def test_a_gateway_that_does_not_lead_yet_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    row = await told(monkeypatch, [False])
    assert (row.error_code, row.end_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
