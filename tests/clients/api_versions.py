"""The versions of APIs that servers report in ApiVersions responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka.protocol.api_key import ApiKey

from deploy.local.jars import artifact_classpath
from deploy.local.kafka import KafkaBroker
from tests.support.raw_client import connected

NEWEST_KAFKA = "4.1.0"
API_NAMES = {int(key): key.name for key in ApiKey}

Versions = dict[str, list[int]]
"""API name → lowest and highest version. Names, so that it can be kept as JSON."""


def advertised(bootstrap: str) -> Versions:
    with connected(bootstrap) as client:
        answer = client.call("ApiVersions", 0)
    found = sorted((each["api_key"], each["min_version"], each["max_version"]) for each in answer["api_keys"])
    return {API_NAMES.get(key, f"API {key}"): [lowest, highest] for key, lowest, highest in found}


@contextmanager
def newest_kafka(work_dir: Path) -> Iterator[str]:
    """The bootstrap address of a Kafka that is newer than the reference, only for its versions of APIs."""
    broker = KafkaBroker(work_dir, class_path=artifact_classpath("org.apache.kafka", "kafka_2.13", NEWEST_KAFKA))
    broker.start()
    try:
        broker.wait_ready()
        yield broker.bootstrap
    finally:
        broker.kill()
