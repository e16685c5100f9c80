"""Partitions that share the window of a connection: each gets its outcomes, whatever happens to the others."""

from __future__ import annotations

import random
from typing import cast

import pytest

from gateway.config.limits import MIB
from gateway.log.writing.appender import MAX_LOSSES
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ConnectionLostError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.send_window import MIN_BYTES, START_BYTES, SendWindow, Sharing
from tests.unit.gateway.log.writing.appender_scene import FakeProducer, Scene, turn

PARTITIONS, STEPS = 5, 120


def shared_window() -> SendWindow:
    sharing = Sharing()
    window = SendWindow("flood", sharing)
    for namespace in ("flood", "quiet", "flood"):
        sharing.wrote(namespace)
    return window


async def test_partitions_share_the_window_in_turns() -> None:
    window = shared_window()
    first, second = Scene(window=window), Scene(window=window)
    for _ in range(40):
        first.append(b"x" * 30_000)
    await turn()
    second.append(b"y")
    await turn()
    assert window.in_flight_bytes < START_BYTES + window.max_entry_bytes
    assert second.producer.sent == []
    first.confirm_all()
    assert len(second.producer.sent) == 1
    second.confirm_all()
    first.confirm_all()
    assert len(first.log.written) == 40


async def test_entries_are_smaller_than_the_window() -> None:
    window = shared_window()
    scene = Scene(window=window)
    scene.append(*[b"x" * 10_000] * 100)
    await turn()
    scene.confirm_all()
    assert max(map(len, scene.producer.sent)) <= START_BYTES / 2
    assert len(scene.log.written) == 100


async def test_a_lost_or_closed_producer_leaves_its_room_to_others() -> None:
    window = shared_window()
    lost, closed, waiting = Scene(window=window), Scene(window=window), Scene(window=window)
    lost.append(*[b"x" * 100_000] * 3)
    await turn()
    closed.append(*[b"y" * 100_000] * 9)
    await turn()
    waiting.append(b"z")
    await turn()
    assert waiting.producer.sent == []
    lost.appender.on_producer_closed(PulsarError("lost"))
    await closed.appender.close()
    assert waiting.producer.sent == [b"z"]
    assert window.in_flight_bytes == 1


async def test_what_waits_is_not_sent_over_a_lost_connection() -> None:
    """It would be refused after some losses, as if brokers closed the connection because of it."""
    window = shared_window()
    full, waiting = await filled(window), Scene(window=window)
    waiting.append(b"z")
    for _ in range(MAX_LOSSES):
        await turn()
        for each in (full, waiting):
            each.producer.connection.state = ConnectionState.CLOSED
        full.appender.on_producer_closed(ConnectionLostError("lost"))
        window = shared_window()
        full = await filled(window)
        lose(waiting, window)
    full.confirm_all()
    assert waiting.producer.sent == [b"z"]
    assert waiting.log.refused == []


async def filled(window: SendWindow) -> Scene:
    """A partition that has sent as much as the window admits."""
    scene = Scene(window=window)
    scene.append(*[b"x" * 300_000] * 3)
    await turn()
    return scene


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_everything_gets_its_outcome(seed: int) -> None:
    rng, window = random.Random(seed), shared_window()
    scenes = [Scene(window=window) for _ in range(PARTITIONS)]
    appended = [0] * PARTITIONS
    for _ in range(STEPS):
        number = rng.randrange(PARTITIONS)
        scene = scenes[number]
        match rng.choice(["append", "append", "confirm", "confirm", "refuse", "claim", "lose", "turn"]):
            case "append":
                for _ in range(rng.randrange(1, 20)):
                    scene.append(rng.randbytes(rng.choice([10, 20_000, 200_000])))
                    appended[number] += 1
            case "confirm" if scene.confirmed < len(scene.producer.sent):
                scene.confirm()
            case "refuse" if scene.confirmed < len(scene.producer.sent):
                scene.appender.on_send_error(scene.confirmed, PulsarError("refused"))
                scene.confirmed += 1
            case "claim" if scene.confirmed < len(scene.producer.sent):
                sent = scene.appender.claim(scene.producer.name, scene.confirmed)
                if sent is not None:
                    scene.log.entry_written(sent, Position(1, scene.confirmed))
            case "lose":
                lose(scene, window)
            case _:
                await turn()
        assert window.in_flight_bytes <= window.limit_bytes + MIB
    for _ in range(1_000):
        await turn()
        for scene in scenes:
            scene.confirm_all()
        if all(scene.appender.idle for scene in scenes):
            break
    assert [len(each.log.written) + len(each.log.refused) for each in scenes] == appended
    assert window.in_flight_bytes == 0
    assert window.admits(print)
    assert window.limit_bytes >= MIN_BYTES


def lose(scene: Scene, window: SendWindow) -> None:
    """The producer is lost, nothing in flight was written, and the next one continues."""
    scene.appender.on_producer_closed(ConnectionLostError("lost"))
    scene.log.refused += [bytes(batch.data) for batch in scene.appender.send_again()]
    scene.producer, scene.confirmed = FakeProducer(window=window), 0
    scene.appender.use(cast(Producer, scene.producer))
