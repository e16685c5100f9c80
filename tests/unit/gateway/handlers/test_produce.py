"""When a produce request is done with: also one with acks=0, though it has no answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.handlers.call import Call, ClosesConnection
from gateway.handlers.produce import PartitionAnswer, ProduceCall, _Part


class Log:
    """Takes everything; what becomes of it is told by the test."""

    start = SimpleNamespace(offset=0)

    def append(self, data: Any, header: Any, source: int, done: Any, messages: Any) -> bool:
        self.done = done
        return False


def produce(acks: int) -> tuple[ProduceCall, Log]:
    """Of one batch."""
    fleet = SimpleNamespace(leads=lambda topic, partition: True, epoch=1)
    nothing = SimpleNamespace(check=lambda *_: None, refuse=lambda *_: None)
    call = SimpleNamespace(
        request=SimpleNamespace(acks=acks), version=7, client_id="c", count_error=lambda code: None,
        client=SimpleNamespace(number=1, address="a", refused=nothing), services=SimpleNamespace(fleet=fleet),
    )  # fmt: skip
    found, log = ProduceCall(cast(Call, call)), Log()
    part = _Part(PartitionAnswer(0), "t", None)
    header = SimpleNamespace(producer_id=-1, max_timestamp=0)
    part.produced = cast(Any, SimpleNamespace(header=header, data=b"", messages=None, log_append_time_ms=-1))
    part.log = cast(Any, log)
    found._parts.append(part)
    return found, log


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_it_is_done_with_when_it_is_written(acks: int) -> None:
    call, log = produce(acks)
    outcome = call.append()
    assert outcome is call.future
    assert not call.future.done()
    log.done(5, None)
    assert call.future.result() is (None if acks == 0 else call.response)


async def test_a_failed_write_is_answered() -> None:
    call, log = produce(-1)
    call.append()
    log.done(-1, TimeoutError())
    assert call.future.result() is call.response


async def test_a_failed_write_without_an_answer_ends_the_connection() -> None:
    call, log = produce(0)
    call.append()
    log.done(-1, TimeoutError())
    assert isinstance(call.future.exception(), ClosesConnection)
