"""MirrorMaker 2 between Apache Kafka and a gateway, both ways: records exactly once, though it is killed; settings of
topics; offsets of groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, commit, committed, create_topic, produce
from tests.integration.servers import lone_gateway_on, running
from tests.support.java_programs.mirror_maker import MirrorMaker
from tests.support.java_programs.transactional_copier import committed_messages, committed_values
from tests.support.names import unique_topic

RECORDS = 1_000
"""Written before MirrorMaker starts, again before it is killed, and again after that.

MirrorMaker stores where the copy of a record is after the transaction that has copied it. Killed in between, it never
does that, so the offset of a group is exact only if other records were copied since.
"""
WITHIN_S = 120.0
POLL_S = 0.3
CONFIGS = {"retention.ms": "86400000", "max.message.bytes": "2000000"}
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Way:
    """From a topic of one cluster to its copy in another one."""

    source: str
    target: str
    topic: str
    copy: str
    group: str

    @property
    def values(self) -> list[bytes]:
        return [b"%s %d" % (self.copy.encode(), number) for number in range(3 * RECORDS)]

    def write(self, values: list[bytes]) -> None:
        produce(self.source, self.topic, [Record(value) for value in values], enable_idempotence=True)

    @property
    def copied(self) -> list[bytes]:
        return committed_values(self.target, self.copy, 0)

    @property
    def configs(self) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.copy)
        admin = AdminClient({"bootstrap.servers": self.target})
        found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: found[name].value for name in CONFIGS}

    @property
    def consumed(self) -> int:
        """The number of copied records before the offset that the group has at the target."""
        (offset,) = committed(self.target, self.group, self.copy)
        return sum((message.offset() or 0) < offset for message in committed_messages(self.target, self.copy, 0))


def test_both_ways(kafka: KafkaBroker, pulsar: PulsarStandalone, tmp_path: Path) -> None:
    topic = unique_topic("mirrored")
    with running(lone_gateway_on(pulsar, tmp_path / "gateway")) as gateway:
        clusters = {"kafka": kafka.bootstrap, "gateway": gateway.bootstrap}
        ways = [
            Way(clusters[source], clusters[target], topic, f"{source}.{topic}", f"{source}-{topic}")
            for source, target in (("kafka", "gateway"), ("gateway", "kafka"))
        ]
        for way in ways:
            create_topic(way.source, topic, config=CONFIGS)
            way.write(way.values[:RECORDS])
        with MirrorMaker(tmp_path, clusters, topic, f".*-{topic}") as mirror_maker:
            mirror_maker.start()
            for way in ways:
                await_(lambda: len(way.copied) > 0, mirror_maker)  # noqa: B023
                way.write(way.values[RECORDS : 2 * RECORDS])
                commit(way.source, way.group, topic, 2 * RECORDS)
            mirror_maker.kill()
            mirror_maker.start()
            for way in ways:
                way.write(way.values[2 * RECORDS :])
                commit(way.source, way.group, topic, 3 * RECORDS)
            for way in ways:
                await_(lambda: len(way.copied) >= 3 * RECORDS, mirror_maker)  # noqa: B023
                await_(lambda: way.configs == CONFIGS, mirror_maker)  # noqa: B023
                await_(lambda: way.consumed == 3 * RECORDS, mirror_maker)  # noqa: B023
        for way in ways:
            assert way.copied == way.values


def await_(reached: Callable[[], bool], mirror_maker: MirrorMaker) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        assert time.monotonic() < deadline, mirror_maker.last_words()
        time.sleep(POLL_S)
