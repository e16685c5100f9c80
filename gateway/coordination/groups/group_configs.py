"""Configurations of single groups, set by clients: the times of the consumer protocol (KIP-848), as in Kafka 4.

They are stored as properties of the topic ``__consumer_offsets``, ``kafka.group.<configuration>/<group id>``. Every
gateway reads them within REFRESH_S. Members get new times with their next heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import starmap

import structlog

from coordinator.group.config import ConsumerTimes
from gateway.config.gateway_config import GroupsSection
from gateway.errors import KafkaError
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.config_values import ConfigType, InvalidValue, whole
from gateway.topics.topic import Topic
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode

PREFIX = "kafka.group."
REFRESH_S = 5.0
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
BOUNDS_MS = {HEARTBEAT: (5_000, 15_000), SESSION: (45_000, 60_000)}
"""Kafka's defaults of group.consumer.min.* and group.consumer.max.*. The gateway's own settings extend these bounds."""
DOCUMENTATION = {
    HEARTBEAT: "How often members of the group send heartbeats, if it uses the consumer protocol.",
    SESSION: "How long a member of the group may be silent, if it uses the consumer protocol.",
}

Configs = Mapping[str, str]
log = structlog.get_logger()


class GroupConfigs:
    def __init__(self, admin: AdminClient, topics: TopicCatalog, section: GroupsSection) -> None:
        self.defaults: Configs = {
            HEARTBEAT: str(section.consumer_heartbeat_interval_ms),
            SESSION: str(section.consumer_session_timeout_ms),
        }
        self.times: Mapping[str, ConsumerTimes] = {}
        """The times of groups that have their own configurations, as last read."""
        self._admin = admin
        self._topics = topics
        self._max_bytes = section.max_configs_bytes

    def own_times(self, group_id: str) -> ConsumerTimes | None:
        """None if the group has no configurations of its own."""
        return self.times.get(group_id)

    async def follow(self) -> None:
        """Keep ``times`` up to date, until cancelled."""
        while True:
            try:
                await self.all()
            except (KafkaError, PulsarError, TimeoutError) as error:
                log.info("cannot read configurations of groups", error=str(error))
            await asyncio.sleep(REFRESH_S)

    async def all(self) -> dict[str, dict[str, str]]:
        """The groups' own configurations, by group. Raises KafkaError and PulsarError."""
        stored = await self._stored()
        found = {group_id: configs for group_id, each in stored.items() if (configs := self._usable_of(each))}
        self.times = {group_id: self._times(configs) for group_id, configs in found.items()}
        return found

    async def _stored(self) -> dict[str, dict[str, str]]:
        """The properties of each group, also those that are not usable."""
        topic = await self._topic()
        found: dict[str, dict[str, str]] = {}
        for key, value in (await self._admin.topics.partitioned(topic.pulsar_name)).properties.items():
            name, separator, group_id = key.removeprefix(PREFIX).partition("/")
            if key.startswith(PREFIX) and separator:
                found.setdefault(group_id, {})[name] = value
        return found

    async def alter(self, group_id: str, change: Callable[[Configs], Configs], *, validate_only: bool) -> None:
        """Replace a group's configurations with the result of ``change``. Raises KafkaError and PulsarError."""
        if validate_only:
            await self._altered(group_id, change)
            return
        async with self._topics.turn(CONSUMER_OFFSETS):
            stored, configs = await self._altered(group_id, change)
            topic = await self._topic()
            for name in stored.keys() - configs.keys():
                await self._admin.topics.remove_property(topic.pulsar_name, f"{PREFIX}{name}/{group_id}")
            changed = {f"{PREFIX}{name}/{group_id}": value for name, value in configs.items()}
            if changed:
                await self._admin.topics.put_properties(topic.pulsar_name, changed)
            await self.all()

    async def _altered(self, group_id: str, change: Callable[[Configs], Configs]) -> tuple[Configs, Configs]:
        """The group's configurations as they are stored, and as they will be."""
        of_groups = await self._stored()
        stored = of_groups.get(group_id, {})
        configs = self._checked(change(self._usable_of(stored)))
        self._check_size(of_groups, group_id, configs)
        return stored, configs

    def _check_size(self, of_groups: Mapping[str, Configs], group_id: str, configs: Configs) -> None:
        """Raises KafkaError when configurations are added and there are too many."""
        before, after = _size_bytes(group_id, of_groups.get(group_id, {})), _size_bytes(group_id, configs)
        if after > before and sum(starmap(_size_bytes, of_groups.items())) + after - before > self._max_bytes:
            text = "The cluster has too many configurations of groups (groups.max_configs_bytes)."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    async def _topic(self) -> Topic:
        topic = await self._topics.get(CONSUMER_OFFSETS)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The topic of the groups is not ready.")
        return topic

    def _checked(self, configs: Configs) -> dict[str, str]:
        checked = {name: self._parsed(name, value) for name, value in configs.items()}
        times = self._times(checked)
        if times.session_timeout_ms <= times.heartbeat_interval_ms:
            raise _invalid(f"{SESSION} must be greater than {HEARTBEAT}")
        return checked

    def _parsed(self, name: str, value: str) -> str:
        if name not in BOUNDS_MS:
            raise _invalid(f"Unknown group config name: {name}")
        try:
            parsed = whole(ConfigType.INT, 1)(value)
        except InvalidValue as error:
            raise _invalid(f"Invalid value {error.shown} for configuration {name}: {error}") from error
        (low, high), default = BOUNDS_MS[name], int(self.defaults[name])
        if int(parsed) < min(low, default):
            raise _invalid(f"{name} must be greater than or equal to {name.replace('consumer', 'group.consumer.min')}")
        if int(parsed) > max(high, default):
            raise _invalid(f"{name} must be less than or equal to {name.replace('consumer', 'group.consumer.max')}")
        return parsed

    def _usable_of(self, stored: Configs) -> dict[str, str]:
        """Properties are checked because any Pulsar client with the right may change a topic's properties."""
        return {name: value for name, value in stored.items() if self._usable(name, value)}

    def _usable(self, name: str, value: str) -> bool:
        try:
            return self._parsed(name, value) == value
        except KafkaError:
            return False

    def _times(self, configs: Configs) -> ConsumerTimes:
        effective = {**self.defaults, **configs}
        return ConsumerTimes(int(effective[SESSION]), int(effective[HEARTBEAT]))


def _size_bytes(group_id: str, configs: Configs) -> int:
    """Of the properties of a group."""
    return sum(len(f"{PREFIX}{name}/{group_id}{value}".encode()) for name, value in configs.items())


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
