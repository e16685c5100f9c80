"""The admin clients of kafka-python and confluent-kafka: the same calls to Apache Kafka and to the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from enum import Enum
from typing import Any

import confluent_kafka as ck
import confluent_kafka.admin
import kafka
import kafka.admin as ka
import pytest
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.structs import OffsetAndMetadata

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, commit, committed, list_topics, produce
from tests.integration.native import wait_for
from tests.integration.servers import lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

ca: Any = confluent_kafka.admin  # the type hints of the module are incomplete
START_MS = 1_900_000_000_000
PARTITIONS = 4
EACH = 3
OF_THE_SERVER = {
    "broker", "broker_id", "brokers", "cluster_id", "controller", "controller_id", "error_message", "host", "id",
    "id_string", "is_fenced", "isr", "isr_nodes", "isrs", "leader", "leader_id", "log_dir", "node_id", "nodes",
    "orig_broker_id", "orig_broker_name", "partition_size", "port", "producer_id", "replica_nodes", "replicas",
    "topic_id", "total_bytes", "usable_bytes",
}  # fmt: skip
"""Fields with different values on each server."""
OF_THE_GATEWAY = "entry.format"
"""A topic configuration that Kafka does not have."""

Answers = dict[str, Any]
Conversation = Callable[[str, str], Answers]


class Calls:
    """Calls an admin client's methods, and keeps the results as plain, comparable values."""

    def __init__(self, admin: Any) -> None:
        self.answers: Answers = {}
        self._admin = admin

    def __call__(self, method: str, *arguments: Any, **options: Any) -> None:
        try:
            answer = plain(getattr(self._admin, method)(*arguments, **options))
        except Exception as error:
            answer = plain(error)
        self.answers[f"{len(self.answers)} {method}"] = answer


def plain(value: Any) -> Any:
    """What a client returned or raised, without values that differ from server to server."""
    if isinstance(value, Future):
        return plain(value.exception(TIMEOUT_S) or value.result())
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in OF_THE_SERVER and key != OF_THE_GATEWAY}
        return {str(plain(key)): plain(item) for key, item in kept.items()}
    if isinstance(value, list | tuple | set) and not hasattr(value, "_asdict"):
        return sorted(map(plain, value), key=repr)
    fields = _fields(value)
    return _text(value) if fields is None else plain(fields)


def _fields(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Enum | Exception | ck.KafkaError):
        return None
    if hasattr(value, "to_dict"):
        return dict(value.to_dict())
    return dict(value._asdict()) if hasattr(value, "_asdict") else getattr(value, "__dict__", None)


def _text(value: Any) -> str:
    if isinstance(value, ck.KafkaException):
        value = value.args[0]
    if isinstance(value, ck.KafkaError):
        return value.name()
    if isinstance(value, Enum):
        return value.name
    return type(value).__name__ if isinstance(value, Exception) else str(value)


def fill(bootstrap: str, topic: str) -> None:
    for partition in range(PARTITIONS):
        times = (START_MS + 10 * number + partition for number in range(EACH))
        records = [Record(b"value", timestamp_ms=time) for time in times]
        produce(bootstrap, topic, records, partition=partition, enable_idempotence=True)


def partition_count(bootstrap: str, topic: str) -> int:
    """Kafka's controller answers before its broker knows new partitions."""
    return len(list_topics(bootstrap, topic).topics[topic].partitions)


def kafka_python(bootstrap: str, topic: str) -> Answers:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        call = Calls(admin)
        call("create_topics", [ka.NewTopic(topic, PARTITIONS - 1, 1)])
        call("create_topics", [ka.NewTopic(topic, 1, 1)])
        call("create_topics", [ka.NewTopic(f"{topic}-other", 3, 1)], validate_only=True)
        call("wait_for_topics", [topic])
        call("describe_configs", [ka.ConfigResource(ka.ConfigResourceType.TOPIC, topic)])
        call("create_partitions", {topic: ka.NewPartitions(PARTITIONS)})
        call("create_partitions", {topic: ka.NewPartitions(9)}, validate_only=True)
        call("create_partitions", {topic: ka.NewPartitions(2)})
        wait_for(lambda: partition_count(bootstrap, topic) == PARTITIONS, "the broker knows the new partition")
        call("describe_topics", [topic])
        call("describe_topic_partitions", [topic], response_partition_limit=2)
        fill(bootstrap, topic)
        partitions = [kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        _kafka_python_groups(call, topic, partitions)
        _kafka_python_partitions(call, topic, partitions, int(admin.describe_cluster()["controller_id"]))
        call("describe_cluster")
        call.answers["listed"] = topic in admin.list_topics()
        retention = {"retention.ms": "777777777"}
        call("alter_configs", [ka.ConfigResource(ka.ConfigResourceType.TOPIC, topic, configs=retention)])
        call("reset_configs", [ka.ConfigResource(ka.ConfigResourceType.TOPIC, topic, configs=["retention.ms"])])
        call("delete_topics", [topic])
        call("delete_topics", [topic])
        return call.answers


def _kafka_python_groups(call: Calls, group: str, partitions: list[Any]) -> None:
    call("alter_group_offsets", group, {partitions[0]: OffsetAndMetadata(1, "note", -1)})
    call("reset_group_offsets", group, {partitions[1]: ka.OffsetSpec.LATEST})
    call("list_group_offsets", {group: partitions})
    call("list_group_offsets", {group: None})
    call("describe_groups", [group], include_authorized_operations=True)
    call("delete_group_offsets", group, [partitions[1]])
    call("remove_group_members", group, [])
    call("delete_groups", [group, f"{group}-none"])


def _kafka_python_partitions(call: Calls, topic: str, partitions: list[Any], node_id: int) -> None:
    for spec in ka.OffsetSpec:
        call("list_partition_offsets", dict.fromkeys(partitions, spec))
    call("list_partition_offsets", dict.fromkeys(partitions, START_MS + 5))
    call("delete_records", {partitions[0]: 2, partitions[1]: -1})
    call("delete_records", {partitions[2]: 99})
    call("list_partition_offsets", dict.fromkeys(partitions, ka.OffsetSpec.EARLIEST))
    call("describe_log_dirs", {topic: [0, 1]})
    call("describe_producers", [partitions[3]])
    call("elect_leaders", 0, [partitions[0]])
    call("elect_leaders", 1, [partitions[0]])
    call("alter_partition_reassignments", {partitions[0]: [node_id]})
    call("alter_partition_reassignments", {partitions[0]: None})
    call("alter_partition_reassignments", {partitions[0]: [node_id + 77]})
    call("list_partition_reassignments")
    call("list_partition_reassignments", partitions)


def confluent(bootstrap: str, topic: str) -> Answers:
    admin = ca.AdminClient({"bootstrap.servers": bootstrap})
    call = Calls(admin)
    call("create_topics", [NewTopic(topic, PARTITIONS - 1, 1)])
    call("create_topics", [NewTopic(topic, 1, 1)])
    call("create_topics", [NewTopic(f"{topic}-other", 3, 1)], validate_only=True)
    call("create_partitions", [NewPartitions(topic, PARTITIONS)])
    call("create_partitions", [NewPartitions(topic, 2)])
    fill(bootstrap, topic)
    partitions = [ck.TopicPartition(topic, number) for number in range(PARTITIONS)]
    _confluent_groups(call, bootstrap, topic, partitions)
    for spec in (ca.OffsetSpec.earliest(), ca.OffsetSpec.latest(), ca.OffsetSpec.for_timestamp(START_MS + 5)):
        call("list_offsets", dict.fromkeys(partitions, spec))
    call("list_offsets", dict.fromkeys(partitions, ca.OffsetSpec.max_timestamp()))
    call("delete_records", [ck.TopicPartition(topic, 0, 2), ck.TopicPartition(topic, 1, ck.OFFSET_END)])
    call("delete_records", [ck.TopicPartition(topic, 2, 99)])
    call("elect_leaders", ck.ElectionType.PREFERRED, partitions[:1])
    call("elect_leaders", ck.ElectionType.UNCLEAN, partitions[:1])
    call("describe_topics", ck.TopicCollection([topic, f"{topic}-none"]), include_authorized_operations=True)
    call("describe_cluster", include_authorized_operations=True)
    call("list_topics", topic)
    entry = ca.ConfigEntry("retention.ms", "777777777", incremental_operation=ca.AlterConfigOpType.SET)
    call("incremental_alter_configs", [ca.ConfigResource("topic", topic, incremental_configs=[entry])])
    call("delete_topics", [topic])
    call("delete_topics", [topic])
    return call.answers


def _confluent_groups(call: Calls, bootstrap: str, group: str, partitions: list[Any]) -> None:
    commit(bootstrap, group, group, 1)
    call("describe_consumer_groups", [group, f"{group}-none"], include_authorized_operations=True)
    call("list_consumer_group_offsets", [ck.ConsumerGroupTopicPartitions(group, partitions)])
    moved = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(group, 0, 2)])
    call("alter_consumer_group_offsets", [moved])
    call("list_consumer_group_offsets", [ck.ConsumerGroupTopicPartitions(group, partitions)])
    call("delete_consumer_groups", [group, f"{group}-none"])


def has_coordinators(bootstrap: str, group: str) -> bool:
    """A new Kafka creates its offsets topic at the first request, and leads it a moment later."""
    try:
        committed(bootstrap, group, group)
    except ck.KafkaException as error:
        code = error.args[0].code()
        assert code in {ck.KafkaError.NOT_COORDINATOR, ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS}, error
        return False
    return True


@pytest.fixture(scope="module")
def new_gateway(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Nobody else has been in its namespace: its leader epochs are those of a new Kafka cluster."""
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("new"))) as server:
        yield server


@pytest.mark.parametrize("client", [kafka_python, confluent])
def test_every_call_is_answered_as_by_kafka(
    client: Conversation, kafka: KafkaBroker, new_gateway: GatewayProcess
) -> None:
    topic = unique_topic("admin")
    wait_for(lambda: has_coordinators(kafka.bootstrap, topic), "Kafka has made its topic of offsets")
    with ThreadPoolExecutor(2) as both:
        expected, actual = both.map(lambda server: client(server.bootstrap, topic), (kafka, new_gateway))
    assert actual == expected
