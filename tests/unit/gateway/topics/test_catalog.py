"""Altering topics: what is written to Pulsar, in which order, and that no other change is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.errors import KafkaError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.topics import catalog
from gateway.topics.topic import COMPACTION_ENDS, COMPACTION_KEYS, MESSAGES_ONLY
from gateway.topics.topic_policies import OUT_OF_REACH_BYTES
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.topics.catalog_scene import Scene


async def test_effects_are_immediate(scene: Scene) -> None:
    await scene.alter(retention_ms="60000", segment_bytes="123")
    topic = scene.catalog.cached("a")
    assert topic is not None
    assert (topic.config("retention.ms"), topic.config("segment.bytes")) == ("60000", "123")
    assert scene.stored == {"kafka.config.retention.ms": "60000", "kafka.config.segment.bytes": "123"}
    assert scene.policies[TopicPolicy.MESSAGE_TTL] == 60


async def test_other_gateways_know_when_they_look_again(scene: Scene) -> None:
    other = scene.another_catalog(max_age_ms=0)
    await other.get("a")
    await scene.alter(max_message_bytes="5000")
    before = other.cached("a")
    assert before is not None
    assert before.config("max.message.bytes") == "1048588"
    async with asyncio.timeout(5):
        while (after := other.cached("a")) is None or after.config("max.message.bytes") != "5000":
            await asyncio.sleep(0)


async def test_back_to_the_default(scene: Scene) -> None:
    await scene.alter(retention_ms="60000", segment_bytes="123")
    await scene.catalog.alter_configs("a", lambda _: {"segment.bytes": "123"}, validate_only=False)
    assert scene.stored == {"kafka.config.segment.bytes": "123"}
    assert scene.policies == {}


async def test_validate_only_and_refused_values_change_nothing(scene: Scene) -> None:
    await scene.alter(retention_ms="60000", validate_only=True)
    with pytest.raises(KafkaError):
        await scene.alter(segment_bytes="1", retention_ms="60000")
    assert (scene.stored, scene.policies) == ({}, {})


async def test_a_value_is_judged_before_the_topic(scene: Scene) -> None:
    """As Kafka's controller does."""
    with pytest.raises(KafkaError) as raised:
        await scene.catalog.alter_configs("none", lambda _: {"retention.ms": "x"}, validate_only=False)
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError) as raised:
        await scene.catalog.alter_configs("none", lambda _: {"retention.ms": "5"}, validate_only=False)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_two_gateways_alter_different_configurations_at_once(scene: Scene) -> None:
    other = scene.another_catalog()
    await asyncio.gather(
        *(scene.alter(segment_ms=str(number)) for number in range(1, 9)),
        *(scene.alter(other, flush_ms=str(number)) for number in range(1, 9)),
    )
    assert scene.stored.keys() == {"kafka.config.segment.ms", "kafka.config.flush.ms"}


async def test_a_policy_that_pulsar_refuses(scene: Scene) -> None:
    scene.pulsar.refused[TopicPolicy.RETENTION] = lambda value: True
    with pytest.raises(KafkaError, match="backlog quota") as raised:
        await scene.alter(retention_ms="60000")
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert scene.stored == {}
    with pytest.raises(KafkaError):
        await scene.catalog.create("b", 2, {"retention.ms": "60000"})
    assert "persistent://t/n/b" not in scene.pulsar.properties


async def test_properties_that_are_no_configurations_do_no_harm(scene: Scene) -> None:
    scene.pulsar.properties["persistent://t/n/a"]["kafka.config.max.message.bytes"] = "many"
    topic = await scene.catalog.get("a", fresh=True)
    assert topic is not None
    assert topic.config("max.message.bytes") == "1048588"


async def test_an_empty_topic_can_become_compacted_and_back(scene: Scene) -> None:
    await scene.alter(cleanup_policy="compact")
    assert MESSAGES_ONLY in scene.stored
    assert TopicPolicy.COMPACTION_THRESHOLD in scene.policies
    await scene.alter(cleanup_policy="delete")
    assert scene.stored == {"kafka.config.cleanup.policy": "delete"}
    assert TopicPolicy.COMPACTION_THRESHOLD not in scene.policies
    partitions = [f"persistent://t/n/a-partition-{number} __compaction" for number in range(2)]
    assert scene.pulsar.subscriptions_deleted == partitions, "it would hold all new data"


async def test_a_topic_with_record_batches_does_not_become_compacted(scene: Scene) -> None:
    scene.pulsar.entries = 3
    for validate_only in (True, False):
        with pytest.raises(KafkaError, match="Pulsar cannot compact them") as raised:
            await scene.catalog.alter_configs("a", lambda _: {"cleanup.policy": "compact"}, validate_only=validate_only)
        assert raised.value.code == ErrorCode.INVALID_CONFIG
    assert scene.stored == {}


async def test_nobody_finds_an_empty_topic_while_its_format_changes(scene: Scene) -> None:
    """Otherwise its first records could still be written in the old format."""
    found: list[object] = []

    async def when_hidden() -> None:
        found.extend((scene.catalog.cached("a"), await scene.catalog.get("a", fresh=True)))
        assert scene.stored == {}

    await alter_hidden(scene, when_hidden)
    assert found == [None, None]
    assert MESSAGES_ONLY in scene.stored
    topic = await scene.catalog.get("a")
    assert topic is not None
    assert topic.compacts


async def test_a_topic_that_is_no_longer_empty_when_all_have_stopped_does_not_become_compacted(scene: Scene) -> None:
    async def when_hidden() -> None:
        scene.pulsar.entries = 1

    with pytest.raises(KafkaError, match="Pulsar cannot compact them"):
        await alter_hidden(scene, when_hidden)
    assert scene.stored == {}
    assert await scene.catalog.get("a") is not None


async def alter_hidden(scene: Scene, when_hidden: Callable[[], Awaitable[None]]) -> None:
    configs = {"cleanup.policy": "compact"}
    await scene.catalog.alter_configs("a", lambda _: configs, validate_only=False, when_hidden=when_hidden)


async def test_a_topic_that_is_compacted_in_name_only_can_be_altered(scene: Scene) -> None:
    """Its properties came from elsewhere."""
    scene.pulsar.entries = 3
    scene.pulsar.properties["persistent://t/n/a"]["kafka.config.cleanup.policy"] = "compact"
    await scene.alter(cleanup_policy="compact", segment_bytes="1000")
    assert MESSAGES_ONLY not in scene.stored
    assert TopicPolicy.COMPACTION_THRESHOLD not in scene.policies
    topic = scene.catalog.cached("a")
    assert topic is not None
    assert (topic.compacts, topic.writes_messages) == (True, True)


async def test_a_compacted_topic_with_transactions_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "POLICY_REACHES_ALL_S", 0)
    await scene.alter(cleanup_policy="compact")
    await scene.catalog.begin_transactions("a")
    assert scene.policies[TopicPolicy.COMPACTION_THRESHOLD] == OUT_OF_REACH_BYTES
    topic = scene.catalog.cached("a")
    assert topic is not None
    assert topic.has_transactions
    assert topic.has_compaction_keys
    await scene.alter(cleanup_policy="compact", segment_bytes="1000")
    assert COMPACTION_KEYS in scene.stored
    assert scene.policies[TopicPolicy.COMPACTION_THRESHOLD] == OUT_OF_REACH_BYTES, "for good"
    assert not scene.pulsar.subscriptions_deleted


async def test_transactions_before_compaction_count(scene: Scene) -> None:
    await scene.catalog.begin_transactions("a")
    assert TopicPolicy.COMPACTION_THRESHOLD not in scene.policies
    await scene.alter(cleanup_policy="compact")
    assert scene.policies[TopicPolicy.COMPACTION_THRESHOLD] == OUT_OF_REACH_BYTES
    await scene.catalog.begin_transactions("a")
    assert COMPACTION_KEYS not in scene.stored, "its records share keys: nothing may be compacted, ever"


async def test_all_see_that_a_topic_was_not_compacted_for_a_while(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes may follow each other quickly."""
    monkeypatch.setattr(catalog, "POLICY_REACHES_ALL_S", 0)
    assert scene.catalog.compaction("a") == 0
    await scene.alter(cleanup_policy="compact")
    await scene.catalog.begin_transactions("a")
    another = scene.another_catalog()
    await another.get("a", fresh=True)
    before = another.compaction("a")
    assert before > 0
    await scene.alter(segment_bytes="1000")
    for policy in ("delete", "compact"):
        await scene.alter(cleanup_policy=policy)
    assert scene.catalog.compaction("a") not in {0, before}
    await another.get("a", fresh=True)
    assert another.compaction("a") == scene.catalog.compaction("a")


async def test_a_property_that_is_no_number_of_changes_does_no_harm(scene: Scene) -> None:
    scene.pulsar.properties["persistent://t/n/a"] |= {COMPACTION_ENDS: "many", "kafka.config.cleanup.policy": "compact"}
    await scene.catalog.get("a", fresh=True)
    assert scene.catalog.compaction("a") == 1
