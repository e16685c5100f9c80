"""A whole Pulsar in one JVM, as small and as fast to respond as its settings allow: for `dev`, tests and benchmarks."""

import http.client
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local.class_archives import archive_options
from deploy.local.jars import PULSAR, classpath
from deploy.local.java import java_executable
from deploy.local.process import ChildProcess, free_port
from deploy.topology.settings import BOOKIE_READS, GATEWAY_NEEDS, TOPIC_SETTINGS

MAIN_CLASS = "org.apache.pulsar.PulsarStandaloneStarter"
LOG4J_CONFIG = Path(__file__).with_name("log4j2.xml")
LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
PROBE_TIMEOUT_S = 5.0

# JDK internals that Pulsar's and Netty's buffers and Pulsar's metrics access.
ADD_OPENS = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

# A single process, so every quorum is one.
SINGLE_NODE_SETTINGS = {
    "clusterName": "standalone",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "loadBalancerEnabled": "false",  # there is no other broker to move a bundle to
    "brokerShutdownTimeoutMs": "5000",
    "allowLoopback": "true",
    "allowEphemeralPorts": "true",  # without it, --bookkeeper-port is ignored
    "listeningInterface": LOOPBACK_INTERFACE,  # bookies bind every address otherwise
    "nettyMaxFrameSizeBytes": str(5 * 1024 * 1024 + 10 * 1024),  # the largest message with the headers of all layers
    "diskUsageThreshold": "0.99",  # a nearly full disk of a developer must not make the bookie read-only
    "diskUsageLwmThreshold": "0.98",
}

EVICTION_SETTINGS = {"managedLedgerCacheEvictionIntervalMs": "1000"}
"""By default, a broker looks for cached entries to drop every 10 ms: a fifth of its CPU when it does little."""

LOW_LATENCY_SETTINGS = {
    # A journal write does not wait for more entries; an idle journal writes immediately.
    "journalMaxGroupWaitMSec": "0",
    "journalFlushWhenQueueEmpty": "true",
    "journalBufferedWritesThreshold": "0",
    # Acknowledge from the page cache, as Kafka does. Killing the process loses nothing, a power failure may:
    # development only.
    "journalSyncData": "false",
    "journalPageCacheFlushIntervalMSec": "1",
    # Waiting consumers get a new entry immediately, not at the next 10 ms tick.
    "managedLedgerNewEntriesCheckDelayInMillis": "0",
}


class PulsarStandalone:
    """Pulsar standalone (`jars.PULSAR`) with RocksDB metadata, on loopback, data in `data_dir`.

    `start` returns immediately, `wait_ready` when topics can be served. Stopped or killed, it can be started again with
    the same data and ports. `settings` are broker and bookie settings that override those above. Where they turn on
    authentication, `wait_ready` needs a `token`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        host: str = "127.0.0.1",
        broker_port: int = 0,
        http_port: int = 0,
        heap_mb: int = 512,
        settings: Mapping[str, str] = {},
        token: str | None = None,
        log_path: Path | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.host = host
        self.broker_port = broker_port or free_port(host)
        self.http_port = http_port or free_port(host)
        self.heap_mb = heap_mb
        self._settings = dict(settings)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._process = ChildProcess("Pulsar", log_path or self.data_dir / "pulsar.log")

    @property
    def service_url(self) -> str:
        return f"pulsar://{self.host}:{self.broker_port}"

    @property
    def admin_url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

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
        """Raises MissingToolError or ResolveError when Java or the jars are missing."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "standalone.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._merged_settings().items()))
        self._process.start(self._command(config))

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Raises StartError with the end of the log."""
        self._process.wait_until(self._is_ready, timeout_s)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def _merged_settings(self) -> dict[str, str]:
        addresses = {
            "bindAddress": self.host,
            "advertisedAddress": self.host,
            "brokerServicePort": str(self.broker_port),
            "webServicePort": str(self.http_port),
        }
        return {
            **GATEWAY_NEEDS,
            **TOPIC_SETTINGS,
            **BOOKIE_READS,
            **SINGLE_NODE_SETTINGS,
            **EVICTION_SETTINGS,
            **LOW_LATENCY_SETTINGS,
            **addresses,
            **self._settings,
        }

    def _command(self, config: Path) -> list[str]:
        jvm = [f"-Xmx{self.heap_mb}m", f"-XX:MaxDirectMemorySize={self.heap_mb}m", "-XX:+ExitOnOutOfMemoryError"]
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in ADD_OPENS]
        properties = [f"-Dlog4j.configurationFile={LOG4J_CONFIG}", "-Dio.netty.tryReflectionSetAccessible=true"]
        directories = ["--metadata-dir", f"{self.data_dir}/metadata", "--bookkeeper-dir", f"{self.data_dir}/bookkeeper"]
        # Has an effect on the first start only: the data of the bookie has its port.
        ports = ["--bookkeeper-port", str(free_port(self.host))]
        parts = ["--no-functions-worker", "--no-stream-storage"]
        jars = classpath(PULSAR)
        command = [java_executable(), *archive_options(jars), *jvm, *opens, *properties, "-cp", jars, MAIN_CLASS]
        return [*command, "--config", str(config), *directories, *ports, *parts]

    def _is_ready(self) -> bool:
        """Pulsar is ready when the default namespace exists, which is created last."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/admin/v2/namespaces/public/default", headers=self._headers)
            if connection.getresponse().status != 200:
                return False
            socket.create_connection((self.host, self.broker_port), PROBE_TIMEOUT_S).close()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True
