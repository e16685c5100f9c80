"""Topics whose records old consumers cannot, or must not, be given: they get an error, as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.log.reading import receipt_lookup
from protocol.kafka.codec import decode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchResponse
from tests.unit.gateway.handlers.both_ways import Way
from tests.unit.gateway.handlers.records.fetches import END, batch, one, produce

VERSIONS = range(13)


@pytest.fixture
async def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    made = Way()
    await made.answers(*(produce(batch()) for _ in range(4)))
    return made


async def row(way: Way, version: int, offset: int) -> Any:
    """That of the only partition, in the second answer of a connection: the first one is never quick."""
    way.reconnect()
    *_, answer = await way.answers(one(version, 0), one(version, offset))
    response = decode_response(FetchResponse, version, memoryview(answer)[4:])
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [0, END])
async def test_a_topic_that_compresses_with_zstd(way: Way, version: int, offset: int) -> None:
    way.configure(compression_type="zstd")
    found = await row(way, version, offset)
    assert found.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else 0)
    assert (found.high_watermark == END) == (version >= 10)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_without_down_conversion(way: Way, version: int) -> None:
    way.configure(message_downconversion_enable="false")
    assert (await row(way, version, 0)).error_code == (ErrorCode.UNSUPPORTED_VERSION if version < 4 else 0)
    way.configure(message_downconversion_enable="true")
    assert not (await row(way, version, 0)).error_code
