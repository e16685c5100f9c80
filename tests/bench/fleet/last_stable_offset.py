"""How long after a takeover a leader knows the last stable offset of a partition with many transactions."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet.costs import create
from tests.bench.fleet.successors import LIMIT_S, Gateways
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected
from tests.support.raw_producer import LEADER_MOVES, NONE, RETRIABLE, RawProducer

OPEN = 2_000
ABORTED = 10_000
WRITERS = 20
TAKEOVERS = 3
TRANSACTION_TIMEOUT_MS = 900_000
LATEST, READ_COMMITTED = -1, 1
RETRIED = RETRIABLE | LEADER_MOVES
TITLE = "The last stable offset of a partition, after its leader was killed"
HEADINGS = ("in the partition", "known after s: median", "longest")
Load = Callable[[str, str, int], None]
"""(bootstrap address, topic, number of the writer): its share of the transactions."""


def last_stable_offset(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """From the moment when the next leader is the only one that clients see, to its answer."""
    with closing(Gateways(work_dir, pulsar)) as gateways:
        for what, load in LOADS.items():
            topic = unique_topic("stable")
            create(gateways.leader.bootstrap, topic, 1)
            with ThreadPoolExecutor(WRITERS) as pool:
                list(pool.map(partial(load, gateways.leader.bootstrap, topic), range(WRITERS)))
            expected = _last_stable_offset(gateways.leader.bootstrap, topic)
            waits_s = []
            for _ in range(TAKEOVERS):
                successor = gateways.take_over([topic])
                began_s = time.monotonic()
                found = _last_stable_offset(successor.bootstrap, topic)
                waits_s.append(time.monotonic() - began_s)
                if found != expected:
                    raise RuntimeError(f"the last stable offset was {expected}, and is {found}")
            figures.add(TITLE, HEADINGS, [what, statistics.median(waits_s), max(waits_s)])


def _last_stable_offset(bootstrap: str, topic: str) -> int:
    rows = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}]
    asked = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": [{"name": topic, "partitions": rows}]}
    deadline_s = time.monotonic() + LIMIT_S
    with connected(bootstrap, timeout_s=LIMIT_S) as client:
        while time.monotonic() < deadline_s:
            [partition] = client.call("ListOffsets", 6, **asked)["topics"][0]["partitions"]
            if partition["error_code"] == NONE:
                return int(partition["offset"])
            if partition["error_code"] not in RETRIED:
                raise RuntimeError(f"error {partition['error_code']}")
            time.sleep(0.01)
    raise TimeoutError("no last stable offset")


def _leave_open(bootstrap: str, topic: str, _: int) -> None:
    """Behind them nothing is stable."""
    with connected(bootstrap, timeout_s=LIMIT_S) as client:
        for number in range(OPEN // WRITERS):
            _begun(_producer(client), topic, str(number))


def _abort(bootstrap: str, topic: str, _: int) -> None:
    with connected(bootstrap, timeout_s=LIMIT_S) as client:
        producer = _producer(client)
        for number in range(ABORTED // WRITERS):
            _begun(producer, topic, str(number))
            producer.finish(committed=False)


def _commit(bootstrap: str, topic: str, number: int) -> None:
    """One committed transaction."""
    if number == 0:
        with connected(bootstrap, timeout_s=LIMIT_S) as client:
            producer = _producer(client)
            _begun(producer, topic, "value")
            producer.finish(committed=True)


def _producer(client: RawClient) -> RawProducer:
    made = RawProducer(client, unique_topic("id"))
    made.init(TRANSACTION_TIMEOUT_MS)
    return made


def _begun(producer: RawProducer, topic: str, text: str) -> None:
    code = producer.write(topic, text)
    if code != NONE:
        raise RuntimeError(f"a batch of a transaction was answered with error {code}")


LOADS: dict[str, Load] = {
    "one committed transaction": _commit,
    f"{ABORTED:,} aborted transactions": _abort,
    f"{OPEN:,} open transactions": _leave_open,
}
