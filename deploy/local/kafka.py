"""Apache Kafka 3.9.2, one KRaft node on loopback: the reference that the gateway is compared with."""

import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.jars import classpath
from deploy.local.java import java_executable
from deploy.local.process import ChildProcess, StartError, free_port

BROKER_CLASS = "kafka.Kafka"
STORAGE_TOOL_CLASS = "kafka.tools.StorageTool"
LOG4J_CONFIG = Path(__file__).with_name("log4j.properties")
HOST = "127.0.0.1"
FORMAT_TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 5.0

SINGLE_NODE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",  # opening fifty logs is most of the start of a small broker
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "broker.session.timeout.ms": "30000",  # the controller must not lose its only broker when the machine is busy
    "group.initial.rebalance.delay.ms": "0",
}
SHORT_SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""For a broker that is killed: it cannot register again before its old session expires."""


class KafkaBroker:
    """Broker and controller in one JVM. Stopped or killed, it can be started again with the same data and ports.

    `listeners` are additional to PLAINTEXT: name → security protocol. `format_options` are options of `kafka-storage
    format`.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        settings: Mapping[str, str] = {},
        *,
        listeners: Mapping[str, str] = {},
        format_options: Sequence[str] = (),
        heap_mb: int = 512,
        log_path: Path | None = None,
        class_path: str | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._class_path = class_path
        self.port = port or free_port(HOST)
        self.heap_mb = heap_mb
        self._controller_port = free_port(HOST)
        self._settings = dict(settings)
        self._listeners = {name: (protocol, free_port(HOST)) for name, protocol in listeners.items()}
        self._format_options = format_options
        self._process = ChildProcess("Kafka", log_path or self.data_dir / "kafka.log")

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """The address of an additional listener."""
        return f"{HOST}:{self._listeners[listener][1]}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def log_path(self) -> Path:
        return self._process.log_path

    def start(self) -> None:
        """Raises MissingToolError or ResolveError when Java or the jars are missing, StartError for an invalid setting.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._merged_settings().items()))
        if not (self.data_dir / "logs" / "meta.properties").exists():
            self._format(config)
        self._process.start([*self._java(), BROKER_CLASS, str(config)])

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Raises StartError with the end of the log."""
        self._process.wait_until(self._is_ready, timeout_s)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def _merged_settings(self) -> dict[str, str]:
        controller = f"CONTROLLER://{HOST}:{self._controller_port}"
        protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in self._listeners.items())
        clients = [f"PLAINTEXT://{HOST}:{self.port}", *(f"{name}://{self.address(name)}" for name in self._listeners)]
        addresses = {
            "listeners": ",".join([*clients, controller]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "log.dirs": f"{self.data_dir}/logs",
        }
        return {**SINGLE_NODE_SETTINGS, **addresses, **self._settings}

    def _java(self) -> list[str]:
        log4j = f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}"
        options = [f"-Xmx{self.heap_mb}m", "-XX:+ExitOnOutOfMemoryError", log4j]
        return [java_executable(), *options, "-cp", self._class_path or classpath("kafka")]

    def _format(self, config: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One argument, because an id may begin with a hyphen.
        options = ["format", f"--cluster-id={cluster_id}", "--config", str(config), *self._format_options]
        command = [*self._java(), STORAGE_TOOL_CLASS, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise StartError(f"Kafka could not format {self.data_dir}:\n{done.stdout}{done.stderr}")

    def _is_ready(self) -> bool:
        """A KRaft broker opens its client port when the controller has registered it."""
        try:
            socket.create_connection((HOST, self.port), PROBE_TIMEOUT_S).close()
        except OSError:
            return False
        return True
