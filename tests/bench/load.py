"""The load generator, a process of its own: `python -m tests.bench.load NAME JSON` prints its result as JSON."""

import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tests.bench import group_load, kafka_load, pulsar_load
from tests.bench.meter import Result
from tests.bench.security import floods, waiting

LOADS: dict[str, Callable[..., Coroutine[Any, Any, Result]]] = {
    "kafka.produce": kafka_load.produce,
    "kafka.produce_to_each": kafka_load.produce_to_each,
    "kafka.consume": kafka_load.consume,
    "kafka.latency": kafka_load.latency,
    "flood.connections": floods.connections,
    "flood.metadata": floods.metadata,
    "flood.waiting": waiting.waiting,
    "groups.commits": group_load.commits,
    "groups.heartbeats": group_load.heartbeats,
    "groups.many": group_load.many_groups,
    "groups.store": group_load.store_offsets,
    "pulsar.produce": pulsar_load.produce,
    "pulsar.consume": pulsar_load.consume,
    "pulsar.latency": pulsar_load.latency,
}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(uvloop.run(LOADS[name](**arguments))))


if __name__ == "__main__":
    main()
