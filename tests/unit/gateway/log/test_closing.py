"""The end of a log: everything that waits gets an answer, and nothing is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import KafkaError
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.log_scene import PLAIN, Scene, answered, batch


async def test_closing_answers_what_is_queued_in_flight_and_behind_a_gap(scene: Scene) -> None:
    scene.topic.delivers = False
    behind_gap = scene.append()
    await let_callbacks_run()
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    scene.producer.confirm(0, position)
    in_flight = scene.append()
    await let_callbacks_run()
    scene.producer.connection.writable = False
    queued = scene.append()
    await scene.log.close()
    for answers in (behind_gap, in_flight, queued):
        offset, error = await answered(answers)
        assert offset == -1
        assert isinstance(error, KafkaError)


async def test_what_is_written_while_the_log_closes_is_not_kept_in_memory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.append()
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    await answered(first)
    in_flight = scene.append()
    await let_callbacks_run()

    async def close() -> None:
        scene.producer.write_and_confirm(1)

    monkeypatch.setattr(scene.producer, "close", close)
    await scene.log.close()
    assert (await answered(in_flight))[1] is None
    assert scene.log._shared.cache.used_bytes == 0


@pytest.mark.parametrize("part", ["start", "transactions", "_follower", "writer"])
async def test_a_defect_in_one_part_does_not_stop_the_close(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Otherwise the log could not be opened again: that waits for the end of the former one."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    waiting = scene.append()

    def fail() -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(getattr(scene.log, part), "close", fail)
    await scene.log.close()
    assert [repr(each["exception"]) for each in failures] == ["KeyError('a defect')"]
    if part != "writer":
        assert isinstance((await answered(waiting))[1], KafkaError)
        assert scene.producer.closed


async def never(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("method", "idempotent"), [("open_producer", False), ("internal_stats", True)])
async def test_closing_refuses_what_waits_to_be_taken(method: str, idempotent: bool) -> None:
    """For instance by a deletion of the topic. The connection is shared with other partitions, and stays."""
    scene = Scene()
    setattr(scene.topic, method, never)
    header = PLAIN._replace(producer_id=7, producer_epoch=0, base_sequence=0) if idempotent else PLAIN
    waiting = asyncio.create_task(scene.log.prepare(header, 1))
    await let_callbacks_run()
    assert not waiting.done()
    await scene.log.close()
    with pytest.raises(KafkaError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
