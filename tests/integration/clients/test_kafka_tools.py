"""Apache Kafka's own command-line tools print the same for the gateway and for Apache Kafka."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import KafkaBroker
from tests.integration.confluent import TIMEOUT_S
from tests.support.gateway_process import GatewayProcess
from tests.support.java_programs.kafka_tools import KafkaTools, Printed
from tests.support.names import unique_topic

TOOLS = "org.apache.kafka.tools"
TOPICS, OFFSETS = f"{TOOLS}.TopicCommand", f"{TOOLS}.GetOffsetShell"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONSUMER, PRODUCER = f"{TOOLS}.consumer.ConsoleConsumer", "kafka.tools.ConsoleProducer"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"

KAFKA_NODE, GATEWAY_NODE = "1", "0"
RECORDS = 20
OF_THE_SERVER = (
    (r"TopicId: \S+", "TopicId: …"),
    (r"(Leader|Replicas|Isr): \d+", r"\1: …"),
    (r"127\.0\.0\.1:\d+ +\(\d+\)", "<coordinator>"),
    (r"broker(s?) [\d,]+", r"broker\1 …"),
    (r'"replicas":\[\d+\]', '"replicas":[…]'),
    (r"\n\d+ *(\t.*None)", r"\n<producer>\1"),
    (r"ProducerId *\t", "ProducerId\t"),
    (r"\t1\d{12}\t", "\t<time>\t"),
    (r" +", " "),
)
"""Values that differ between the servers, and their placeholders."""


class BothServers:
    """Runs a tool on Apache Kafka and on the gateway at the same time. Fails if exit code or output differ."""

    def __init__(self, kafka: KafkaTools, gateway: KafkaTools) -> None:
        self.gateway = gateway
        self._servers = ((kafka, KAFKA_NODE), (gateway, GATEWAY_NODE))
        self._threads = ThreadPoolExecutor(2)

    def __call__(self, tool: str, *arguments: str, reads: str = "") -> Printed:
        """An argument NODE is replaced by the id of the server's only node. Returns the output for the gateway."""

        def run(server: tuple[KafkaTools, str]) -> Printed:
            tools, node_id = server
            return tools(tool, *(node_id if each == "NODE" else each for each in arguments), reads=reads)

        expected, actual = self._threads.map(run, self._servers)
        deadline = time.monotonic() + TIMEOUT_S
        while _comparable(actual) != _comparable(expected):
            # Kafka's broker applies changes of its controller a moment later.
            is_read = "--describe" in arguments or "--list" in arguments
            assert is_read and time.monotonic() < deadline, f"{tool} {' '.join(arguments)}: {expected} {actual}"
            expected, actual = self._threads.map(run, self._servers)
        return actual


def _comparable(printed: Printed) -> tuple[int, list[str]]:
    text = printed.text
    for pattern, stands in OF_THE_SERVER:
        text = re.sub(pattern, stands, text)
    return printed.status, sorted(text.splitlines())


@pytest.fixture(scope="module")
def both(kafka: KafkaBroker, gateway: GatewayProcess) -> Iterator[BothServers]:
    with KafkaTools(kafka.bootstrap) as of_kafka, KafkaTools(gateway.bootstrap) as of_gateway:
        yield BothServers(of_kafka, of_gateway)


@pytest.fixture(scope="module")
def topic(both: BothServers) -> str:
    """A topic with two partitions, and records that are distributed by key."""
    name = unique_topic("tools")
    assert both(TOPICS, "--create", "--topic", name, "--partitions", "2").status == 0
    lines = "".join(f"key {number}:value {number}\n" for number in range(RECORDS))
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    assert both(PRODUCER, "--topic", name, *keyed, reads=lines).status == 0
    return name


def to_file(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_topics(both: BothServers) -> None:
    name = unique_topic("tools")
    created = both(TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=-1")
    assert created.text == f"Created topic {name}.\n"
    assert "already exists" in both(TOPICS, "--create", "--topic", name).text
    assert both(TOPICS, "--create", "--topic", name, "--if-not-exists").status == 0
    both(TOPICS, "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in both(TOPICS, "--describe", "--topic", name).text
    both(TOPICS, "--alter", "--topic", name, "--partitions", "1")
    assert both(TOPICS, "--describe", "--under-replicated-partitions").text == ""
    assert both(TOPICS, "--list", "--topic", name).text == f"{name}\n"
    both(TOPICS, "--delete", "--topic", name)
    assert both(TOPICS, "--list", "--topic", name).text == "\n"
    assert "does not exist" in both(TOPICS, "--describe", "--topic", name).text


def test_records_are_consumed_and_found(both: BothServers, topic: str) -> None:
    numbered = ("--property", "print.key=true", "--property", "print.partition=true", "--property", "print.offset=true")
    read = both(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", str(RECORDS), *numbered)
    assert read.text.count("value") == RECORDS
    for when in ("earliest", "latest", "earliest-local", "latest-tiered", "1"):
        assert both(OFFSETS, "--topic", topic, "--time", when).status == 0


def test_groups(both: BothServers, topic: str) -> None:
    group = unique_topic("tools-group")
    moves = ("--reset-offsets", "--execute", "--group", group, "--topic")
    both(CONSUMER, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(RECORDS))
    described = both(GROUPS, "--describe", "--group", group)
    assert described.text.count(topic) == 2
    assert "Empty" in both(GROUPS, "--describe", "--group", group, "--state").text
    both(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    assert both(*_reset(moves, topic, "--to-earliest")).text.count(topic) == 2
    both(*_reset(moves, f"{topic}:0", "--shift-by", "2"))
    both(*_reset(moves, topic, "--to-datetime", "2020-01-01T00:00:00.000"))
    both(*_reset(moves, topic, "--by-duration", "PT0S"))
    both(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert group in both.gateway(GROUPS, "--list").text
    assert "successful" in both(GROUPS, "--delete", "--group", group).text
    assert "does not exist" in both(GROUPS, "--describe", "--group", group).text


def _reset(moves: tuple[str, ...], topic: str, *to: str) -> tuple[str, ...]:
    return GROUPS, *moves, topic, *to


def test_records_are_deleted(both: BothServers, topic: str, tmp_path: Path) -> None:
    wanted = [{"topic": topic, "partition": number, "offset": offset} for number, offset in ((0, 3), (1, -1))]
    file = to_file(tmp_path / "offsets.json", {"version": 1, "partitions": wanted})
    deleted = both(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", file)
    assert f"partition: {topic}-0\tlow_watermark: 3" in deleted.text
    assert f"{topic}:0:3\n" in both(OFFSETS, "--topic", topic, "--time", "earliest").text
    wanted[0]["offset"] = 1_000
    file = to_file(tmp_path / "beyond.json", {"version": 1, "partitions": wanted})
    assert "OffsetOutOfRange" in both(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", file).text


def test_replicas(both: BothServers, topic: str, tmp_path: Path) -> None:
    for kind in ("preferred", "unclean"):
        both(f"{TOOLS}.LeaderElectionCommand", "--election-type", kind, "--topic", topic, "--partition", "0")
    assert both(REASSIGN, "--list").text == "No partition reassignments found.\n"
    file = to_file(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": topic}]})
    both(REASSIGN, "--generate", "--topics-to-move-json-file", file, "--broker-list", "NODE")
    producers = ("describe-producers", "--topic", topic, "--partition", "0")
    assert "LastSequence" in both(f"{TOOLS}.TransactionsCommand", *producers).text


def test_sizes_and_versions(both: BothServers, topic: str) -> None:
    printed = both.gateway(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic).text
    [broker] = json.loads(printed.splitlines()[-1])["brokers"]
    [log_dir] = broker["logDirs"]
    assert {part["partition"] for part in log_dir["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    assert all(part["size"] > 0 for part in log_dir["partitions"])
    assert "Produce(0): 0 to" in both.gateway("kafka.admin.BrokerApiVersionsCommand").text
