"""Produce requests whose batch is accepted, and written when the test says so."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

from gateway.handlers.records.produce import ProduceCall
from gateway.handlers.records.produce_answers import Part
from protocol.kafka.handwritten.produce_request import ProducedTopic


class Log:
    """Accepts every batch. The test sets the outcome."""

    start = SimpleNamespace(offset=0)
    producers = None

    def append(self, data: Any, header: Any, source: int, done: Any, messages: Any) -> bool:
        self.done = done
        return False


def produce(acks: int, timeout_ms: int = 30_000) -> tuple[ProduceCall, Log]:
    """Of one batch."""
    fleet = SimpleNamespace(leads=lambda topic, partition: True, epoch=1)
    nothing = SimpleNamespace(check=lambda *_: None, refuse=lambda *_: None)
    call = SimpleNamespace(
        request=SimpleNamespace(acks=acks, timeout_ms=timeout_ms), version=7, client_id="c",
        count_error=lambda code: None, started=time.perf_counter(),
        client=SimpleNamespace(number=1, address="a", refused=nothing), cluster=SimpleNamespace(fleet=fleet),
    )  # fmt: skip
    found, log = ProduceCall(cast(Any, call)), Log()
    part = Part(ProducedTopic(name="t"), 0, None)
    header = SimpleNamespace(producer_id=-1, max_timestamp=0)
    part.produced = cast(Any, SimpleNamespace(header=header, data=b"", messages=None, log_append_time_ms=-1))
    part.log = cast(Any, log)
    found._parts.append(part)
    return found, log
