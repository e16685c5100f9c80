"""DeleteTopics deletes the named topic, and no other."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from gateway.handlers.topics import delete_topics
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import TOPIC_ID
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

OLD, NEW = uuid.uuid4(), uuid.uuid4()


@pytest.fixture
def pulsar() -> FakeTopics:
    pulsar = FakeTopics()
    pulsar.properties[PREFIX + "t"] = {TOPIC_ID: str(OLD)}
    pulsar.policies[PREFIX + "t"] = {}
    return pulsar


async def deleted(catalog: TopicCatalog, topic_id: uuid.UUID) -> Any:
    groups = SimpleNamespace(topic_deleted=Mock(), deletion_failed=AsyncMock())
    cluster = SimpleNamespace(topics=catalog, group_service=groups, logs=SimpleNamespace(forget_topic=AsyncMock()))
    request = SimpleNamespace(topics=[SimpleNamespace(name=None, topic_id=topic_id)])
    call = SimpleNamespace(request=request, version=6, cluster=cluster, count_error=lambda code: None)
    answer = await delete_topics.handle(cast(Any, call))
    return answer.responses[0].error_code


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
