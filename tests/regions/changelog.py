"""Transactional writers of a compacted topic in several clusters, and what must be left of what they wrote."""

from __future__ import annotations

import itertools
import random
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.integration.confluent import TIMEOUT_S
from tests.integration.transactional import read_pairs
from tests.regions.lab import Lab
from tests.regions.pipes import ABORTS, CALL_TIMEOUT_S, transactional_producer
from tests.support.traffic.transactional_traffic import Client, until_answered

KEYS = 5
"""Of each region alone."""
SHARED = b"shared"
"""The key that all regions write. Clusters may disagree about its latest value, as they have another order."""
PAUSE_S = 0.05
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "4000", "delete.retention.ms": "0"}
PADDING = 100 * b"x"


class Changelog(Client):
    """Writes the same keys again and again, in transactions. A quarter of them is aborted."""

    def __init__(self, bootstrap: str, topic: str, region: str) -> None:
        super().__init__(f"{topic}-{region}")
        self.latest: dict[bytes, set[bytes]] = {}
        """By key, the values of which one has to be the last."""
        self.aborted: set[bytes] = set()
        self.commits = 0
        self._servers, self._topic, self._region = bootstrap, topic, region.encode()
        self._random = random.Random(region)

    def go_on(self) -> None:
        producer = transactional_producer(self._servers, self.name)
        try:
            for number in itertools.count():
                if self.stopping.is_set():
                    break
                value = b"%s %d " % (self._region, number) + PADDING
                keys = [b"%s %d" % (self._region, self._random.randrange(KEYS)), SHARED]
                producer.begin_transaction()
                for key in keys:
                    producer.produce(self._topic, value, key, 0)
                if self._random.random() < ABORTS:
                    self.aborted.add(value)
                    producer.flush(CALL_TIMEOUT_S)
                    until_answered(producer.abort_transaction, self.stopping, CALL_TIMEOUT_S)
                else:
                    for key in keys:
                        self.latest.setdefault(key, set()).add(value)
                    until_answered(producer.commit_transaction, self.stopping, CALL_TIMEOUT_S)
                    self.latest.update({key: {value} for key in keys})
                    self.commits += 1
                time.sleep(PAUSE_S)
        except KafkaException:
            if not self.stopping.is_set():  # otherwise its cluster was killed
                raise


def make_compacted(lab: Lab, topic: str) -> None:
    """In all clusters: configurations are not replicated."""
    for region in lab.regions:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in CONFIGS.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[*changes])
        client = AdminClient({"bootstrap.servers": lab.only(region)})
        client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def check_left(lab: Lab, region: str, topic: str, writers: list[Changelog]) -> int:
    """Check what a cluster has. Returns the number of values that later ones have replaced, and are still there."""
    pairs = read_pairs(lab.only(region), topic)
    aborted = {value for writer in writers for value in writer.aborted}
    shown = [value for _, value in pairs if value in aborted]
    assert not shown, f"{region} shows what was aborted: {shown[:3]}"
    left = dict(pairs)
    for writer in writers:
        for key, values in writer.latest.items():
            assert key == SHARED or left.get(key) in values, f"{region} has {left.get(key)!r} of {key!r}, not {values}"
    assert SHARED in left, f"{region} has lost the key that all write"
    return len(pairs) - len(left)


def compacted_entries(lab: Lab, region: str, topic: str) -> int:
    found: int = lab.internal_stats(region, topic)["compactedLedger"]["entries"]
    return found
