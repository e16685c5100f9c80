"""DeleteTopics deletes the named topic, and no other."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from gateway.handlers.topics import delete_topics
from gateway.handlers.topics.delete_topics import DELETED_AT_ONCE
from gateway.topics.catalog import TopicCatalog
from gateway.topics.requested_topics import RequestedTopics
from gateway.topics.topic import TOPIC_ID
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

OLD, NEW = uuid.uuid4(), uuid.uuid4()


@pytest.fixture
def pulsar() -> FakeTopics:
    pulsar = FakeTopics()
    pulsar.properties[PREFIX + "t"] = {TOPIC_ID: str(OLD)}
    pulsar.policies[PREFIX + "t"] = {}
    return pulsar


async def answered(catalog: TopicCatalog, *topics: Any) -> list[tuple[str | None, int]]:
    """The names and error codes of the response's rows."""
    groups = SimpleNamespace(leave_topic_everywhere=AsyncMock(), topic_deleted=Mock(), deletion_failed=AsyncMock())
    cluster = SimpleNamespace(topics=catalog, group_service=groups, logs=SimpleNamespace(forget_topic=AsyncMock()))
    request = SimpleNamespace(topics=topics, timeout_ms=1_000)
    call = SimpleNamespace(
        request=request, version=6, cluster=cluster, topics=RequestedTopics(catalog), count_error=lambda code: None,
        charge_mutations=lambda partitions: None,
    )  # fmt: skip
    answer = await delete_topics.handle(cast(Any, call))
    return [(row.name, row.error_code) for row in answer.responses]


async def deleted(catalog: TopicCatalog, topic_id: uuid.UUID) -> Any:
    [(_, code)] = await answered(catalog, SimpleNamespace(name=None, topic_id=topic_id))
    return code


async def test_by_its_id(pulsar: FakeTopics) -> None:
    assert await deleted(TopicCatalog(pulsar.client, "t/n", 60_000), OLD) == ErrorCode.NONE
    assert not pulsar.properties


async def test_an_id_of_before_does_not_delete_what_was_made_anew(pulsar: FakeTopics) -> None:
    catalog = TopicCatalog(pulsar.client, "t/n", 60_000)
    await catalog.get("t")
    pulsar.properties[PREFIX + "t"] = {TOPIC_ID: str(NEW)}  # by another gateway, just now
    assert await deleted(catalog, OLD) == ErrorCode.UNKNOWN_TOPIC_ID
    assert pulsar.properties
    assert await deleted(catalog, NEW) == ErrorCode.NONE


async def test_a_topic_that_is_made_anew_while_its_deletion_waits_for_others_stays(pulsar: FakeTopics) -> None:
    ids = {f"t{number}": uuid.uuid4() for number in range(DELETED_AT_ONCE + 1)}
    for name, topic_id in ids.items():
        pulsar.properties[PREFIX + name], pulsar.policies[PREFIX + name] = {TOPIC_ID: str(topic_id)}, {}
    pulsar.may_delete.clear()
    catalog = TopicCatalog(pulsar.client, "t/n", 60_000)
    asked = [SimpleNamespace(name=None, topic_id=topic_id) for topic_id in ids.values()]
    deleting = asyncio.create_task(answered(catalog, *asked))
    while pulsar.requests["delete_partitioned forced"] < DELETED_AT_ONCE:
        await asyncio.sleep(0)
    last = PREFIX + f"t{DELETED_AT_ONCE}"
    pulsar.properties[last] = {TOPIC_ID: str(NEW)}  # by another gateway
    pulsar.may_delete.set()
    assert (await deleting)[-1] == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert pulsar.properties[last] == {TOPIC_ID: str(NEW)}


async def test_a_defect_is_the_error_of_the_request(pulsar: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is cancelled instead closes its connection, and nobody finds out why."""
    catalog = TopicCatalog(pulsar.client, "t/n", 60_000)
    monkeypatch.setattr(catalog, "delete", AsyncMock(side_effect=ArithmeticError("a defect")))
    with pytest.raises(ArithmeticError):
        await answered(catalog, SimpleNamespace(name=None, topic_id=OLD))


async def test_many_topics_are_deleted_side_by_side(pulsar: FakeTopics) -> None:
    """Pulsar takes a while for each; a client waits a minute for all of them."""
    names = [f"t{number}" for number in range(3 * DELETED_AT_ONCE)]
    for name in names:
        pulsar.properties[PREFIX + name], pulsar.policies[PREFIX + name] = {}, {}
    pulsar.may_delete.clear()
    catalog = TopicCatalog(pulsar.client, "t/n", 60_000)
    asked = [SimpleNamespace(name=name, topic_id=None) for name in ["absent", *names, "t0"]]
    deleting = asyncio.create_task(answered(catalog, *asked))
    while pulsar.requests["delete_partitioned forced"] < DELETED_AT_ONCE:
        await asyncio.sleep(0)
    await let_callbacks_run()
    assert pulsar.requests["delete_partitioned forced"] == DELETED_AT_ONCE
    pulsar.may_delete.set()
    others = [("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), *((name, ErrorCode.NONE) for name in names[1:])]
    assert await deleting == [("t0", ErrorCode.INVALID_REQUEST), *others]
    assert set(pulsar.properties) == {PREFIX + "t", PREFIX + "t0"}
