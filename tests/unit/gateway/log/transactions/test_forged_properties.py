"""Properties of messages that native producers write: a log opens with any, and believes only what gateways write."""

from __future__ import annotations

import pytest

from gateway.log.bounds.transaction_flag import CHECKPOINT, CHECKPOINT_AT
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.checkpoint import Checkpoint, encode_checkpoint
from gateway.log.transactions.state import OpenTransaction
from gateway.pulsar.position import Position, parse_position
from protocol.kafka.transaction_marker import MarkerType
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import KeyValue
from tests.unit.gateway.log.log_scene import batch
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
LAST = Position(3, 2)
NOTHING_OPEN = encode_checkpoint(Checkpoint(LAST, 3, {}))
NATIVE = {
    "a checkpoint without transactions": [{CHECKPOINT: NOTHING_OPEN}],
    "a transaction that nobody has begun": [
        {CHECKPOINT: encode_checkpoint(Checkpoint(LAST, 3, {9: OpenTransaction(0, 0)}))}
    ],
    "a checkpoint somewhere else": [{CHECKPOINT: NOTHING_OPEN}, {CHECKPOINT_AT: "3:3"}],
    "no checkpoint there": [{CHECKPOINT_AT: "3:1"}],
}
FAR = 1 << 40
MALFORMED = {
    "no checkpoint": [{CHECKPOINT: "nonsense"}],
    "text": [{CHECKPOINT: "ü", CHECKPOINT_AT: "ü:ü"}],
    "no checkpoint there": [{CHECKPOINT_AT: "3:1"}],
    "no entry": [{CHECKPOINT_AT: "3:-1"}],
    "no number of Pulsar's": [{CHECKPOINT_AT: f"2:{10**30}"}],
    "digits without end": [{CHECKPOINT_AT: "9" * 10_000}],
    "of a later offset": [{CHECKPOINT: encode_checkpoint(Checkpoint(LAST, FAR, {}, aborted_from=FAR))}],
    "of an impossible entry": [{CHECKPOINT: encode_checkpoint(Checkpoint(Position(2, -7), 3, {}))}],
    "with an impossible one before": [{CHECKPOINT: encode_checkpoint(Checkpoint(LAST, 3, {}, before=Position(-9, 1)))}],
}


def forge(scene: TransactionScene, properties: dict[str, str], *, native: bool) -> None:
    """``native``: not even the property with which gateways name the format."""
    scene.topic.write(encode_message(b"native") if native else bytes(batch()), 1, "native", 0, native=native)
    found = scene.topic.entries[-1][3].properties
    found.extend([KeyValue(key=key.encode(), value=value.encode()) for key, value in properties.items()])


async def with_transactions() -> TransactionScene:
    """One was aborted at 0, another one is open from 2 on."""
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.end(1, ABORT)
    await scene.begin(2)
    return scene


async def shows(log: PartitionLog, stable: int, aborted: list[tuple[int, int]]) -> None:
    await log.end.refresh()
    await log.transactions.prepare_to_read(0)
    assert await decided(log) == (stable, aborted)


@pytest.mark.parametrize("properties", NATIVE.values(), ids=NATIVE)
async def test_native_messages_say_nothing_about_transactions(
    no_settling: None, properties: list[dict[str, str]]
) -> None:
    scene = await with_transactions()
    for each in properties:
        forge(scene, each, native=True)
    for log in (scene.log, await scene.opened()):
        await shows(log, 2, [(1, 0)])


@pytest.mark.parametrize("properties", MALFORMED.values(), ids=MALFORMED)
async def test_what_no_gateway_writes_stops_no_log(no_settling: None, properties: list[dict[str, str]]) -> None:
    """Although the entry claims to be one of a gateway."""
    scene = await with_transactions()
    for each in properties:
        forge(scene, each, native=False)
    for log in (scene.log, await scene.opened()):
        await shows(log, 2, [(1, 0)])
    await scene.lead()
    await scene.end(2, ABORT)
    await scene.begin(3)
    await scene.end(3, ABORT)
    end = scene.log.end_offset
    for log in (scene.log, await scene.opened()):
        await shows(log, end, [(1, 0), (2, 2), (3, end - 2)])


def test_positions() -> None:
    for text in ("", ":", "1", "1:", "1:x", "-2:1", "1:-2", f"{2**63}:1", f"1:{2**63}", "9" * 10_000 + ":1"):
        assert parse_position(text) is None, text[:30]
    for position in (Position(0, 0), Position(-1, -1), Position(7, -1), Position(2**63 - 1, 2**63 - 1)):
        assert parse_position(f"{position.ledger_id}:{position.entry_id}") == position
