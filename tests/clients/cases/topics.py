"""Topics that the client itself creates and changes."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, eventually, expect, numbered

FEATURE = "topic administration"


def create_topic(lab: Lab) -> Any:
    """create with partitions and configurations"""
    topic = lab.name("t")
    configs = {"retention.ms": "3600000", "cleanup.policy": "compact"}
    lab.client.call("create_topic", topic=topic, partitions=3, configs=configs)
    eventually(lambda: lab.witness.call("partitions", topic=topic), 3)
    eventually(lambda: lab.witness.call("configs", topic=topic, names=[*configs]), configs)


def delete_topic(lab: Lab) -> Any:
    """delete"""
    topic = lab.topic(2)
    lab.client.call("delete_topic", topic=topic)
    eventually(lambda: lab.witness.call("partitions", topic=topic), None)


def count_partitions(lab: Lab) -> Any:
    """partitions of a topic, and of one that is not there"""
    topic = lab.topic(5)
    eventually(lambda: lab.client.call("partitions", topic=topic), 5)
    expect(lab.client.call("partitions", topic=lab.name("missing")), None)


def add_partitions(lab: Lab) -> Any:
    """add partitions; fewer are refused"""
    topic = lab.topic(1)
    lab.client.call("add_partitions", topic=topic, partitions=3)
    eventually(lambda: lab.witness.call("partitions", topic=topic), 3)
    return lab.client.error("add_partitions", topic=topic, partitions=2)


def describe_configs(lab: Lab) -> Any:
    """configurations, set ones and defaults"""
    topic = lab.topic(retention_ms="7200000")
    names = ["retention.ms", "cleanup.policy", "min.insync.replicas", "message.timestamp.type"]
    found = lab.client.call("configs", topic=topic, names=names)
    expect(found["retention.ms"], "7200000")
    return found


def alter_configs(lab: Lab) -> Any:
    """change a configuration; a wrong value is refused"""
    topic = lab.topic()
    lab.client.call("set_config", topic=topic, name="retention.ms", value="7200000")
    names, changed = ["retention.ms"], {"retention.ms": "7200000"}
    eventually(lambda: lab.witness.call("configs", topic=topic, names=names), changed)
    return lab.client.error("set_config", topic=topic, name="retention.ms", value="soon")


def delete_records(lab: Lab) -> Any:
    """delete records"""
    topic = lab.topic()
    lab.witness.produce(topic, numbered(20))
    lab.client.call("delete_records", topic=topic, partition=0, offset=12)
    expect(lab.witness.call("bounds", topic=topic, partition=0), [12, 20])


def create_refused(lab: Lab) -> Any:
    """create refused: exists, bad name, no partitions, unknown configuration"""
    new = {"partitions": 1, "configs": {}}
    return [
        lab.client.error("create_topic", topic=lab.topic(), **new),
        lab.client.error("create_topic", topic="not a name!", **new),
        lab.client.error("create_topic", topic=lab.name("none"), partitions=0, configs={}),
        lab.client.error("create_topic", topic=lab.name("config"), partitions=1, configs={"retention.ms": "soon"}),
    ]


def delete_refused(lab: Lab) -> Any:
    """delete refused: not there"""
    return lab.client.error("delete_topic", topic=lab.name("missing"))
