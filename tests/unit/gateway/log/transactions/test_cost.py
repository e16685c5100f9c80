"""The cost of transactions in a log without any: bytecode instructions, which are the same in every run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gateway
import protocol
from gateway.log.transactions import log_transactions
from tests.bench.inside import scene as inside_scene
from tests.bench.inside.cases import CASES
from tests.bench.inside.worker import warm_up
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.log_scene import Scene, append, batch

ROOMS = tuple(str(Path(each.__file__ or "").parent) for each in (gateway, protocol))
TRANSACTIONS = str(Path(log_transactions.__file__).parent)
BATCHES = 50
WRITTEN, READ = 40, 82
"""Instructions of a batch in the code of transactions, at most: 1.8 and 4.4 % of those of its log alone, without the
request, the checks of its records, and the sockets.
"""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Instructions of the gateway and its protocols, by file."""
    found: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(ROOMS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            found[file] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def of_transactions(found: Counter[str]) -> float:
    """Of each batch."""
    assert sum(found.values()) > 100 * BATCHES
    return in_transactions(found) / BATCHES


def in_transactions(found: Counter[str]) -> int:
    return sum(count for file, count in found.items() if file.startswith(TRANSACTIONS))


async def test_writing_without_transactions(scene: Scene) -> None:
    with counted() as found:
        for sequence in range(BATCHES):
            await append(scene, 7, sequence)
            for sequence_id in [*scene.producer.sent]:
                scene.producer.write_and_confirm(sequence_id)
                del scene.producer.sent[sequence_id]
            await let_callbacks_run()
    assert scene.log.end_offset == BATCHES + 1
    assert of_transactions(found) <= WRITTEN


async def test_following_and_reading_without_transactions(scene: Scene) -> None:
    with counted() as found:
        for number in range(BATCHES):
            scene.topic.write(bytes(batch(1)), 1, "other", number)
            await scene.log.end.refresh()
            assert scene.log.transactions.known_to(number) > number
            assert scene.log.reader.read(number, 1 << 20, before=scene.log.transactions.last_stable_offset) is not None
    assert scene.log.end_offset == BATCHES + 1
    assert of_transactions(found) <= READ


@pytest.mark.parametrize(
    "case", ["produce 1 from 20", "produce 160 from 20", "fetch in a session of 1", "read from the start"]
)
async def test_share_of_a_whole_gateway(case: str) -> None:
    """From the client's bytes to Pulsar's and back, but for sockets: within 1 %."""
    gateway_without_sockets = inside_scene.Scene()
    gateway_without_sockets.fleet.beat()
    load = CASES[case](gateway_without_sockets)
    await warm_up(load)
    found: Counter[str] = Counter()
    batches = 0
    while batches < 2 * BATCHES:
        step = load.next_step()
        with counted() as more:
            await step.run()
        found += more
        batches += step.batches
    await load.until_all_answered()
    assert sum(found.values()) > 300 * batches  # fewer if several of them come in one turn of the loop
    assert in_transactions(found) <= 0.01 * sum(found.values())
