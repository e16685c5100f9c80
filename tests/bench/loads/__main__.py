"""The load generator, a process of its own: `python -m tests.bench.loads NAME JSON` prints its result as JSON."""

import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tests.bench.loads import groups, kafka, pulsar
from tests.bench.loads.meter import Result
from tests.bench.security import floods, waiting

LOADS: dict[str, Callable[..., Coroutine[Any, Any, Result]]] = {
    "kafka.produce": kafka.produce,
    "kafka.produce_to_each": kafka.produce_to_each,
    "kafka.consume": kafka.consume,
    "kafka.latency": kafka.latency,
    "flood.connections": floods.connections,
    "flood.metadata": floods.metadata,
    "flood.waiting": waiting.waiting,
    "groups.commits": groups.commits,
    "groups.heartbeats": groups.heartbeats,
    "groups.many": groups.many_groups,
    "groups.store": groups.store_offsets,
    "pulsar.produce": pulsar.produce,
    "pulsar.consume": pulsar.consume,
    "pulsar.latency": pulsar.latency,
}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(uvloop.run(LOADS[name](**arguments))))


if __name__ == "__main__":
    main()
