"""Configurations of single groups: checked as in Kafka, stored in a topic's properties, read by the coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.group.config import ConsumerTimes
from gateway.config.gateway_config import GroupsSection
from gateway.coordination.groups.group_configs import HEARTBEAT, SESSION, GroupConfigs
from gateway.errors import KafkaError
from gateway.pulsar.admin.client import AdminClient
from gateway.topics.catalog import TopicCatalog
from protocol.kafka.errors import ErrorCode


class FakePulsar:
    """The properties of the groups' topic; a catalog and an admin client with this topic only."""

    def __init__(self) -> None:
        self.properties = {"kafka.topic.id": "something else"}
        self.missing = False
        self.topics = self
        self._turn = asyncio.Lock()

    def turn(self, _name: str) -> asyncio.Lock:
        return self._turn

    async def get(self, name: str) -> Any:
        return None if self.missing else SimpleNamespace(pulsar_name=name)

    async def partitioned(self, topic: str) -> Any:
        return SimpleNamespace(properties=self.properties)

    async def put_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        self.properties = {**self.properties, **properties}

    async def remove_property(self, topic: str, key: str) -> None:
        del self.properties[key]


@pytest.fixture
def pulsar() -> FakePulsar:
    return FakePulsar()


def configs_on(pulsar: FakePulsar, **section: Any) -> GroupConfigs:
    return GroupConfigs(cast(AdminClient, pulsar), cast(TopicCatalog, pulsar), GroupsSection(**section))


async def put(configs: GroupConfigs, group: str, own: Mapping[str, str], *, validate_only: bool = False) -> None:
    await configs.alter(group, lambda _: own, validate_only=validate_only)


async def test_what_is_set_is_kept_and_known_until_it_is_deleted(pulsar: FakePulsar) -> None:
    configs = configs_on(pulsar)
    await put(configs, "g/1", {SESSION: "50000", HEARTBEAT: "7000"})
    assert configs.times == {"g/1": ConsumerTimes(50_000, 7_000)}
    other = configs_on(pulsar)
    assert await other.all() == {"g/1": {SESSION: "50000", HEARTBEAT: "7000"}}
    assert other.times == configs.times
    await put(configs, "g/1", {HEARTBEAT: "+7000 "})
    assert configs.times == {"g/1": ConsumerTimes(45_000, 7_000)}
    await put(configs, "g/1", {})
    assert await other.all() == {}
    assert other.times == {}
    assert pulsar.properties == {"kafka.topic.id": "something else"}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"consumer.timeout.ms": "1"}, "Unknown group config name: consumer.timeout.ms"),
        ({SESSION: "1_000"}, "Not a number of type INT"),
        ({SESSION: "0"}, "Value must be at least 1"),
        ({SESSION: "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, "less than or equal to group.consumer.max.heartbeat.interval.ms"),
    ],
)
async def test_what_kafka_refuses_is_refused(pulsar: FakePulsar, own: dict[str, str], reason: str) -> None:
    configs = configs_on(pulsar)
    for validate_only in (True, False):
        with pytest.raises(KafkaError, match=reason) as raised:
            await put(configs, "g", own, validate_only=validate_only)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert await configs.all() == {}


async def test_bounds_include_the_gateways_settings(pulsar: FakePulsar) -> None:
    configs = configs_on(pulsar, consumer_session_timeout_ms=6_000, consumer_heartbeat_interval_ms=500)
    await put(configs, "g", {SESSION: "6000", HEARTBEAT: "500"})
    with pytest.raises(KafkaError, match="must be greater than"):
        await put(configs, "g", {HEARTBEAT: "6000"})


async def test_there_are_not_too_many(pulsar: FakePulsar) -> None:
    """Gateways read all of them every few seconds, and Pulsar's metadata store has no room for more."""
    configs = configs_on(pulsar, max_configs_bytes=10_000)
    for number in range(5):
        await put(configs, f"{number}".zfill(1_900), {SESSION: "50000"})
    for validate_only in (True, False):
        with pytest.raises(KafkaError, match="max_configs_bytes") as raised:
            await put(configs, "x" * 1_900, {SESSION: "50000"}, validate_only=validate_only)
        assert raised.value.code is ErrorCode.POLICY_VIOLATION
    await put(configs, "4".zfill(1_900), {SESSION: "55000"})
    await put(configs, "4".zfill(1_900), {})
    await put(configs, "x" * 1_900, {SESSION: "50000"})


async def test_validation_changes_nothing(pulsar: FakePulsar) -> None:
    configs = configs_on(pulsar)
    await put(configs, "g", {SESSION: "50000"}, validate_only=True)
    assert await configs.all() == {}
    assert configs.times == {}


async def test_properties_that_are_no_configurations_do_no_harm(pulsar: FakePulsar) -> None:
    pulsar.properties |= {f"kafka.group.{SESSION}/g": "soon", f"kafka.group.{SESSION}": "50000", "kafka.group.x/g": "1"}
    assert await configs_on(pulsar).all() == {}


async def test_before_the_topic_is_there(pulsar: FakePulsar) -> None:
    pulsar.missing = True
    with pytest.raises(KafkaError) as raised:
        await configs_on(pulsar).all()
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_change_removes_properties_that_are_not_usable(pulsar: FakePulsar) -> None:
    others = {"kafka.topic.id": "something else", f"kafka.group.{SESSION}/h": "1"}
    unusable = {f"kafka.group.{SESSION}/g": "1", "kafka.group.unknown/g": "x"}
    pulsar.properties = {**others, **unusable}
    await put(configs_on(pulsar), "g", {}, validate_only=True)
    assert pulsar.properties == {**others, **unusable}
    await put(configs_on(pulsar), "g", {})
    assert pulsar.properties == others
