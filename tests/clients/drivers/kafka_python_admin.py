"""The admin clients of kafka-python: the one of 1.4 and 2.0, which returns responses, and the one of 3.0."""

from __future__ import annotations

import re
from typing import Any

import kafka
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.structs import TopicPartition

from tests.clients.drivers.lines import Unsupported

TIMEOUT_MS = 30_000


class OldAdmin:
    """1.4 and 2.0."""

    def __init__(self, server: dict[str, Any]) -> None:
        self._client = KafkaAdminClient(**server)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)], timeout_ms=TIMEOUT_MS)

    def delete_topic(self, topic: str) -> None:
        self._client.delete_topics([topic], timeout_ms=TIMEOUT_MS)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._client.create_partitions({topic: NewPartitions(partitions)}, timeout_ms=TIMEOUT_MS)

    def configs(self, topic: str, names: list[str]) -> dict[str, str]:
        found = self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        response = found[0] if isinstance(found, list) else found
        _check(response.resources[0][0])
        values = {entry[0]: entry[1] for entry in response.resources[0][4]}
        return {name: values[name] for name in names}

    def set_config(self, topic: str, name: str, value: str) -> None:
        response = self._client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
        _check(response.resources[0][0])

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        raise Unsupported("no DeleteRecords")

    def describe_group(self, group: str) -> dict[str, Any]:
        (found,) = self._client.describe_consumer_groups([group])
        state, members = (found.state, found.members) if hasattr(found, "state") else (found[2], found[5])
        return {"state": state, "members": len(members)}

    def groups(self, prefix: str) -> list[str]:
        return sorted(name for name, _ in self._client.list_consumer_groups() if name.startswith(prefix))

    def delete_group(self, group: str) -> None:
        if not hasattr(self._client, "delete_consumer_groups"):
            raise Unsupported("no DeleteGroups")
        ((_, error),) = self._client.delete_consumer_groups([group])
        _check(error.errno)


class NewAdmin(OldAdmin):
    """3.0."""

    def configs(self, topic: str, names: list[str]) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._client.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: found[name]["value"] for name in names}

    def set_config(self, topic: str, name: str, value: str) -> None:
        answers = self._client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
        _check_text(answers["topic"][topic])

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        self._client.delete_records({TopicPartition(topic, partition): offset}, timeout_ms=TIMEOUT_MS)

    def describe_group(self, group: str) -> dict[str, Any]:
        found = self._client.describe_groups([group])[group]
        return {"state": found["group_state"], "members": len(found["members"])}

    def groups(self, prefix: str) -> list[str]:
        names = [found["group_id"] for found in self._client.list_groups()]
        return sorted(name for name in names if name.startswith(prefix))

    def delete_group(self, group: str) -> None:
        _check_text(self._client.delete_groups([group])[group])


def new_admin(server: dict[str, Any]) -> OldAdmin:
    return NewAdmin(server) if int(kafka.__version__.split(".")[0]) >= 3 else OldAdmin(server)


def _check(code: int) -> None:
    if code:
        raise errors.for_code(code)


def _check_text(answer: str) -> None:
    """Results of 3.0 are OK or an error as text, such as "[Error 40] InvalidConfigurationError: …"."""
    if named := re.search(r"\w+Error\b", answer.partition("] ")[2] or answer):
        raise getattr(errors, named[0])
