"""The request of a KIP-848 heartbeat, as the coordinator gets it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from coordinator.group.consumer.messages import ConsumerHeartbeatRequest
from coordinator.group.consumer.validation import MAX_NAMES_OF_GROUP, MAX_TOPIC_NAMES
from gateway.coordination.expressions import CostlyRegexError
from gateway.handlers.groups import consumer_group_heartbeat
from gateway.handlers.groups.consumer_group_heartbeat import MAX_OWNED_PARTITIONS
from gateway.requests.policy import ALL_ALLOWED, AllAllowed, Policy
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest


def heartbeat(
    request: ConsumerGroupHeartbeatRequest, policy: Policy = ALL_ALLOWED, knows: Callable[..., object] = lambda *_: True
) -> ConsumerHeartbeatRequest:
    """The request as the coordinator gets it."""
    got: list[ConsumerHeartbeatRequest] = []
    consumer_group_heartbeat.handle(call_of(request, got, policy, knows))
    return got[0]


def call_of(
    request: ConsumerGroupHeartbeatRequest, got: list[ConsumerHeartbeatRequest], policy: Policy = ALL_ALLOWED,
    knows: Callable[..., object] = lambda *_: True,
) -> Any:  # fmt: skip
    coordinator = SimpleNamespace(consumer_heartbeat=lambda asked, now_ms, reply: got.append(asked))

    def run(group_id: str, call: Any) -> Any:
        return call(coordinator, 0)

    def ask(group_id: str, heartbeat: Any, to_response: Any) -> Any:
        heartbeat(coordinator, 0, None)
        return asyncio.get_running_loop().create_future()

    service = SimpleNamespace(subscribed_topics=SimpleNamespace(knows=knows))
    return SimpleNamespace(
        request=request, version=1, client_id="c", client=SimpleNamespace(host="/h"),
        cluster=SimpleNamespace(groups=SimpleNamespace(ask=ask, run=run), group_service=service),
        context=SimpleNamespace(client_policy=policy),
    )  # fmt: skip


async def test_an_id_of_zeros_is_one_that_no_topic_has() -> None:
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=None, partitions=[0, 2])]
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=owned)
    assert heartbeat(request).owned == {bytes(16): {0, 2}}


async def test_too_many_names_are_not_looked_up() -> None:
    """The coordinator refuses them. Otherwise `knows` would be called."""
    names = ["t"] * (MAX_TOPIC_NAMES + 1)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, subscribed_topic_names=names)
    with pytest.raises(ZeroDivisionError):
        heartbeat(replace(request, subscribed_topic_names=["t"]), knows=lambda *_: 1 // 0)
    assert heartbeat(request, knows=lambda *_: 1 // 0).subscribed_topic_names == names
    more = replace(request, subscribed_topic_names=["t"] * 10 * MAX_TOPIC_NAMES)
    assert heartbeat(more, knows=lambda *_: 1 // 0).subscribed_topic_names == names, "no more of them are copied"


async def test_very_many_owned_partitions_are_collected_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    to_thread = AsyncMock(side_effect=lambda collect, topics: collect(topics))
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    numbers = list(range(consumer_group_heartbeat.LARGE_ROWS + 1))
    rows = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=None, partitions=numbers)]
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=rows)
    got: list[ConsumerHeartbeatRequest] = []
    await consumer_group_heartbeat.handle(call_of(request, got)).prepared()
    assert got[0].owned == {bytes(16): set(numbers)}
    assert to_thread.await_count == 1


async def test_the_coordinator_gets_the_topics_that_the_client_may_describe() -> None:
    class DescribesOne(AllAllowed):
        def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
            return (operation, resource_type, name) == (AclOperation.DESCRIBE, ResourceType.TOPIC, "t")

    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, subscribed_topic_regex="t|u")
    got = heartbeat(request, DescribesOne())
    assert [name for name in ("t", "u") if got.rights.may_describe(name)] == ["t"]


async def test_the_coordinator_refuses_an_expression_that_takes_too_long() -> None:
    got: list[ConsumerHeartbeatRequest] = []
    coordinator = SimpleNamespace(
        consumer_heartbeat=lambda asked, now_ms, reply: got.append(asked), classic_topics=lambda group_id: frozenset()
    )

    async def learn(names: set[str], regex: str | None) -> set[str]:
        assert (names, regex) == (set(), "t.*")
        raise CostlyRegexError("it takes an hour")

    def ask(group_id: str, heartbeat: Any, to_response: Any) -> Any:
        heartbeat(coordinator, 0, None)
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(None)
        return answered

    topics = SimpleNamespace(knows=lambda names, regex: False, learn=learn)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, subscribed_topic_regex="t.*")
    call = SimpleNamespace(
        request=request, version=1, client_id="c", client=SimpleNamespace(host="/h"),
        cluster=SimpleNamespace(
            groups=SimpleNamespace(ask=ask), group_service=SimpleNamespace(subscribed_topics=topics)
        ),
        context=SimpleNamespace(client_policy=ALL_ALLOWED),
    )  # fmt: skip
    await consumer_group_heartbeat.handle(cast(Any, call)).result()
    assert [asked.regex_problem for asked in got] == ["it takes an hour"]


@pytest.mark.parametrize(
    "fields",
    [{"rebalance_timeout_ms": -1}, {"topic_partitions": None}, {"subscribed_topic_names": None}, {"group_id": ""}],
)
async def test_nothing_is_read_for_an_invalid_request(fields: dict[str, Any]) -> None:
    """Otherwise `classic_topics` would be called, which the coordinator lacks here."""
    valid = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    with pytest.raises(AttributeError):
        heartbeat(valid)
    assert heartbeat(replace(valid, **fields)).member_epoch == 0


async def test_more_partitions_than_a_member_can_own_are_refused() -> None:
    rows = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=None, partitions=[0] * (MAX_OWNED_PARTITIONS + 1))]
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=rows)
    for many in (rows, rows[:1] * (MAX_NAMES_OF_GROUP + 1)):
        call = SimpleNamespace(request=replace(request, topic_partitions=many))
        answer = await consumer_group_heartbeat.handle(cast(Any, call)).result()
        assert cast(Any, answer).error_code is ErrorCode.INVALID_REQUEST
