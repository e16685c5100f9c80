"""Batches whose records need validation for longer than the client's timeout: they are written nevertheless."""

from __future__ import annotations

import time

import pytest

from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.integration.confluent import TIMEOUT_S, create_topic, watermarks
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

RECORDS = 400_000
REQUEST_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
"""Clients send the batch again: Pulsar may need longer than this short timeout."""


@pytest.mark.parametrize("config", [{"entry.format": "pulsar"}, {"cleanup.policy": "compact"}])
def test_very_many_records_are_written_once(gateway: GatewayProcess, config: dict[str, str]) -> None:
    topic = unique_topic("heavy")
    create_topic(gateway.bootstrap, topic, config={**config, "max.message.bytes": "20000000"})
    batch = bytes(
        encode_batch(
            [Record(delta, 1_000, b"k", b"") for delta in range(RECORDS)], compression=1,
            producer_id=2**40 + 7, producer_epoch=0, base_sequence=0,
        )
    )  # fmt: skip
    with connected(gateway.bootstrap, timeout_s=TIMEOUT_S) as client:
        deadline = time.monotonic() + 2 * TIMEOUT_S
        error_code = REQUEST_TIMED_OUT
        while error_code == REQUEST_TIMED_OUT and time.monotonic() < deadline:
            answer = client.call(
                "Produce", 9, transactional_id=None, acks=-1, timeout_ms=1_000,
                topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
            )  # fmt: skip
            [row] = answer["responses"][0]["partition_responses"]
            error_code = row["error_code"]
        assert (error_code, row["base_offset"]) == (0, 0)
    assert watermarks(gateway.bootstrap, topic) == (0, RECORDS)
