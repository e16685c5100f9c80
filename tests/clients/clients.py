"""The clients of the trial, and how to build and start each on this machine. Everything is built below `build/clients`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from deploy.local.jars import artifact_classpath
from deploy.local.java import java_executable

REPOSITORY = Path(__file__).parents[2]
BUILD_DIR = REPOSITORY / "build" / "clients"
DRIVERS = Path(__file__).parent / "drivers"
BUILD_TIMEOUT_S = 900
ERROR_LINES = 5
GSON = ("com.google.code.gson", "gson", "2.11.0")
JAXB = ("javax.xml.bind", "jaxb-api", "2.3.1")
"""A part of Java until Java 10; SCRAM needs it before Kafka 1.0."""
JVM_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Command = Sequence[str]


class NotAvailableError(Exception):
    """A client cannot be installed on this machine; the message says why."""


@dataclass(frozen=True)
class ClientKind:
    """`prepare` builds what is missing, and returns the command, whose argument is a bootstrap address."""

    name: str
    version: str
    language: str
    prepare: Callable[[], Command]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def all_clients() -> list[ClientKind]:
    return [
        LIBRDKAFKA,
        *(_kafka_python(number) for number in ("1.4.7", "2.0.6", "3.0.12")),
        AIOKAFKA,
        *(_java(number, source) for number, source in JAVA_VERSIONS.items()),
        *(_go(name, module) for name, module in GO_MODULES.items()),
        _kafkajs(),
        _rust_rdkafka(),
    ]


def _in_venv(module: str) -> Command:
    return [sys.executable, "-m", f"tests.clients.drivers.{module}"]


PYTHON_PATH = {"PYTHONPATH": str(REPOSITORY)}
LIBRDKAFKA = ClientKind(
    "confluent-kafka (librdkafka)", version("confluent-kafka"), "Python", lambda: _in_venv("librdkafka"), PYTHON_PATH
)
AIOKAFKA = ClientKind("aiokafka", version("aiokafka"), "Python", lambda: _in_venv("aiokafka_driver"), PYTHON_PATH)
JAVA_VERSIONS = {
    "0.9.0.1": "v0_9",
    "0.10.2.2": "v0_10",
    "0.11.0.3": "v0_11",
    "1.1.1": "v1_1",
    "2.8.2": "v2_8",
    "3.9.2": "v2_8",
    "4.3.0": "v2_8",
}
"""Version → folder of the Version.java for it."""
GO_MODULES = {
    "sarama": "github.com/IBM/sarama",
    "franz": "github.com/twmb/franz-go",
    "segmentio": "github.com/segmentio/kafka-go",
}
"""Folder of the driver → the client library."""
CODECS = ("python-snappy", "lz4", "zstandard")


def _kafka_python(number: str) -> ClientKind:
    def prepare() -> Command:
        home = BUILD_DIR / f"kafka-python-{number}"
        python = home / "bin" / "python"
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(home)])
        if not (home / "stamp").exists():
            _run([str(python), "-m", "pip", "install", "--quiet", f"kafka-python=={number}", *CODECS])
            _run([str(python), "-c", "import kafka"])
            (home / "stamp").touch()
        return [str(python), "-m", "tests.clients.drivers.kafka_python"]

    return ClientKind("kafka-python", number, "Python", prepare, PYTHON_PATH)


def _java(number: str, source: str) -> ClientKind:
    def prepare() -> Command:
        others = (GSON, JAXB) if number.startswith("0.") else (GSON,)
        artifacts = (("org.apache.kafka", "kafka-clients", number), *others)
        class_path = ":".join(artifact_classpath(*each) for each in artifacts)
        classes = BUILD_DIR / f"java-{number}"
        sources = [*(DRIVERS / "java").glob("*.java"), *(DRIVERS / "java" / source).glob("*.java")]
        _run(["javac", "-nowarn", "-encoding", "UTF-8", "-cp", class_path, "-d", str(classes), *map(str, sources)])
        return [java_executable(), *JVM_OPTIONS, "-cp", f"{classes}:{class_path}", "Driver"]

    return ClientKind("Java kafka-clients", number, "Java", prepare)


def _go(folder: str, module: str) -> ClientKind:
    def prepare() -> Command:
        program = BUILD_DIR / f"go-{folder}"
        _need("go")
        _run(["go", "build", "-o", str(program), f"./{folder}"], DRIVERS / "go")
        return [str(program)]

    return ClientKind(module.rpartition("/")[2], _required_go_version(module), "Go", prepare)


def _kafkajs() -> ClientKind:
    source = DRIVERS / "node"

    def prepare() -> Command:
        home = BUILD_DIR / "kafkajs"
        _need("npm")
        shutil.copytree(source, home, dirs_exist_ok=True)
        if not (home / "node_modules").exists():
            _run(["npm", "ci", "--no-audit", "--no-fund"], home)
        return ["node", str(home / "driver.js")]

    number = json.loads((source / "package.json").read_text())["dependencies"]["kafkajs"]
    return ClientKind("KafkaJS", number, "JavaScript", prepare)


def _rust_rdkafka() -> ClientKind:
    manifest = DRIVERS / "rust" / "Cargo.toml"

    def prepare() -> Command:
        target = BUILD_DIR / "rust"
        _need("cargo")
        _run(["cargo", "build", "--quiet", "--locked", "--manifest-path", str(manifest), "--target-dir", str(target)])
        return [str(target / "debug" / "driver")]

    number = tomllib.loads(manifest.read_text())["dependencies"]["rdkafka"]["version"]
    return ClientKind("rust-rdkafka", number.removeprefix("="), "Rust", prepare)


def _required_go_version(module: str) -> str:
    lines = (DRIVERS / "go" / "go.mod").read_text().splitlines()
    return next(line.split()[1].removeprefix("v") for line in lines if line.split()[:1] == [module])


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise NotAvailableError(f"{tool} is not installed")


def _run(command: Command, folder: Path = REPOSITORY) -> None:
    """Raises NotAvailableError with the end of the command's output."""
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False, env={**os.environ}
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-ERROR_LINES:]
        raise NotAvailableError(f"{Path(command[0]).name} failed: " + " / ".join(lines))
