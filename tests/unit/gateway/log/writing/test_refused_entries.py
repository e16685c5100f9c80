"""The broker refuses one entry, and writes later ones that are in flight already."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import KafkaError, error_code
from gateway.log.writing import log_writer
from gateway.pulsar.errors import NotAllowedError, PulsarError, QuotaExceededError
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.log_scene import Scene, answered, append


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotAllowedError("too large"), ErrorCode.POLICY_VIOLATION),
        (QuotaExceededError("full"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_batch_that_was_overtaken_is_lost_for_good(scene: Scene, error: PulsarError, code: ErrorCode) -> None:
    """Its client must not retry: the batch is out of order, and a client may take that error as an old success."""
    first = await append(scene, 7, 0)
    second = await append(scene, 7, 1)
    refused, written = scene.producer.sent
    scene.producer.listener.on_send_error(refused, error)
    scene.producer.write_and_confirm(written)
    _, failure = await answered(first)
    assert failure is not None
    assert error_code(failure) == code
    assert await answered(second) == (1, None)

    with pytest.raises(KafkaError) as again:
        await append(scene, 7, 0)
    assert again.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    third = await append(scene, 7, 2)
    scene.producer.write_and_confirm(written + 1)
    assert await answered(third) == (2, None)


async def test_one_that_nothing_has_overtaken_comes_again(scene: Scene) -> None:
    first = await append(scene, 7, 0)
    (refused,) = scene.producer.sent
    scene.producer.listener.on_send_error(refused, QuotaExceededError("full"))
    _, failure = await answered(first)
    assert failure is not None
    assert error_code(failure) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = await append(scene, 7, 0)
    scene.producer.write_and_confirm(refused + 1)
    assert await answered(again) == (1, None)


async def test_the_clients_of_very_many_batches_get_their_errors_in_slices(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all have them, no later sequence is accepted: its connection does not know yet that one was refused."""
    monkeypatch.setattr(log_writer, "ANSWERED_AT_ONCE", 2)
    answers = [scene.append() for _ in range(7)]
    await let_callbacks_run()
    scene.log.writer.on_lease_lost()
    scene.log.writer._refuse(scene.log.writer._appender.abandon_in_flight(), KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    for answered_already in (2, 4, 6):
        assert sum(map(len, answers)) == answered_already
        with pytest.raises(KafkaError) as refused:
            await append(scene, 7, 5)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(0)
    assert sum(map(len, answers)) == 7
    await append(scene, 7, 5)


async def test_a_log_is_closed_when_the_clients_of_its_refused_batches_know(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next log knows nothing of them, and would accept what follows."""
    monkeypatch.setattr(log_writer, "ANSWERED_AT_ONCE", 1)
    answers = [scene.append() for _ in range(5)]
    await let_callbacks_run()
    scene.producer.lose()
    await scene.log.close()
    assert [len(each) for each in answers] == [1] * 5
