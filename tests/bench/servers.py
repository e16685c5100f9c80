"""The three servers of a run, and their use of the machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.bench.loads.meter import Result
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.raw_client import connected

HEAP_MB = 1024
"""The heap of Pulsar and of Kafka."""
LOAD_TIMEOUT_S = 120
TOPIC_TIMEOUT_S = 30.0


class Servers:
    """Pulsar, a gateway on it, and Kafka."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.pulsar = PulsarStandalone(work_dir / "pulsar", heap_mb=HEAP_MB)
        self.kafka = KafkaBroker(work_dir / "kafka", heap_mb=HEAP_MB)
        self.gateway = GatewayProcess(work_dir / "gateway", self.pulsar.service_url, self.pulsar.admin_url)

    def bootstrap(self, target: str) -> str:
        return {"gateway": self.gateway.bootstrap, "kafka": self.kafka.bootstrap}[target]

    def create_topic(self, target: str, name: str, partitions: int = 1) -> None:
        """A topic for Pulsar alone is created through the gateway, too."""
        create_topic(self.gateway.bootstrap if target == "pulsar" else self.bootstrap(target), name, partitions)

    def end_offset(self, target: str, topic: str) -> int:
        return end_offset(self.bootstrap(target), topic)

    def restart_gateway(self) -> None:
        """Restart the gateway, so that it has nothing in memory."""
        self.gateway.stop()
        self.gateway.start()
        self.gateway.wait_ready()


@contextmanager
def running_servers(work_dir: Path) -> Iterator[Servers]:
    servers = Servers(work_dir)
    try:
        servers.pulsar.start()
        servers.kafka.start()
        servers.pulsar.wait_ready()
        servers.kafka.wait_ready()
        servers.gateway.start()
        servers.gateway.wait_ready()
        yield servers
    finally:
        servers.gateway.stop()
        servers.kafka.kill()
        servers.pulsar.kill()


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    """Raises RuntimeError."""
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
        "configs": [{"name": "max.message.bytes", "value": "2097152"}],
    }  # fmt: skip
    with connected(bootstrap, timeout_s=TOPIC_TIMEOUT_S) as client:
        answer = client.call("CreateTopics", 4, topics=[topic], timeout_ms=30_000, validate_only=False)
    error = answer["topics"][0]["error_code"]
    if error:
        raise RuntimeError(f"{bootstrap} did not create {name}: error {error}")


def end_offset(bootstrap: str, topic: str) -> int:
    """The end offset of the topic's only partition."""
    query = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    with connected(bootstrap, timeout_s=TOPIC_TIMEOUT_S) as client:
        answer = client.call("ListOffsets", 2, replica_id=-1, isolation_level=0, topics=[query])
    return int(answer["topics"][0]["partitions"][0]["offset"])


def pulsar_topic(topic: str) -> str:
    return f"persistent://kafka/default/{topic}-partition-0"


def run_load(name: str, *, timeout_s: float = LOAD_TIMEOUT_S, **arguments: Any) -> Result:
    """Run the load generator to its end. Raises RuntimeError with its error output."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.loads", name, json.dumps(arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"load {name} {arguments} failed:\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout)
    return result
