"""Produce (key 0), v0 to v11: every kind of invalid batch."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import (
    CODECS,
    COMPRESSORS,
    CONTROL,
    LOG_APPEND_TIME,
    T0_MS,
    TRANSACTIONAL,
    Record,
    batch,
    records,
    with_bad_crc,
    with_length,
)
from tests.conformance.requests import (
    await_coordinator,
    encode_records,
    native_magic,
    produce_fields,
    read_back,
    shared,
    try_to_write,
)

SINCE_V3 = range(3, 12)
SILENCE_S = 5.0


@case("Produce", [0, 3, 11])
def test_null_records(conversation: Conversation, version: int) -> None:
    """Kafka's handler fails on these and never answers."""
    topic = shared(conversation)
    client = conversation.connect(timeout_s=SILENCE_S)
    client.send("Produce", version, **produce_fields(version, {topic: {0: None}}))
    conversation.outcome(client)
    read_back(conversation, topic)


@case("Produce")
def test_empty_record_set(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, b"")


@case("Produce")
@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60])
def test_record_set_shorter_than_a_header(conversation: Conversation, version: int, size: int) -> None:
    try_to_write(conversation, version, encode_records(records(1), native_magic(version))[:size])


@case("Produce")
def test_corrupt_crc(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, with_bad_crc(encode_records(records(2), native_magic(version))))


@case("Produce")
@pytest.mark.parametrize("change", [-1, 1, 100])
def test_length_field_off(conversation: Conversation, version: int, change: int) -> None:
    data = encode_records(records(1), native_magic(version))
    try_to_write(conversation, version, with_length(data, len(data) - 12 + change))


@case("Produce", [0, 2, 3, 8, 11])
@pytest.mark.parametrize("length", [-1, 0, 4, 13, 48, 2**31 - 1, -(2**31)])
def test_length_field_absurd(conversation: Conversation, version: int, length: int) -> None:
    try_to_write(conversation, version, with_length(encode_records(records(1), native_magic(version)), length))


@case("Produce")
def test_two_batches(conversation: Conversation, version: int) -> None:
    """From v3, exactly one v2 batch for each partition is accepted."""
    try_to_write(conversation, version, batch(records(1)) + batch(records(2)))


@case("Produce", [3, 8, 11])
def test_bytes_after_the_batch(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, batch(records(1)) + b"\x00" * 5)
    try_to_write(conversation, version, batch(records(1)) + b"\x00" * 40)


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize(
    "wrong",
    [{"count": number} for number in (2, 0, -1, 2**31 - 1)] + [{"last_offset_delta": number} for number in (5, -1)],
    ids=str,
)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_counts_that_disagree(conversation: Conversation, version: int, wrong: dict[str, Any], codec: str) -> None:
    try_to_write(conversation, version, batch(records(1), CODECS[codec], **wrong))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("declared", [2, 1000])
def test_both_counts_too_high(conversation: Conversation, version: int, declared: int) -> None:
    try_to_write(conversation, version, batch(records(1), count=declared, last_offset_delta=declared - 1))


@case("Produce", [3, 8, 11])
def test_more_records_than_a_large_batch_can_hold(conversation: Conversation, version: int) -> None:
    declared = 2**31 - 1
    data = batch(records(1_000), count=declared, last_offset_delta=declared - 1)
    try_to_write(conversation, version, data)


@case("Produce", [3, 8, 11])
def test_batch_without_records(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, batch([]))
    try_to_write(conversation, version, batch([], last_offset_delta=0))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("codec", CODECS)
def test_records_that_do_not_parse(conversation: Conversation, version: int, codec: str) -> None:
    try_to_write(conversation, version, batch(records(1), CODECS[codec], body=b"\x7fgarbage" * 9))


RECORD = bytes.fromhex("14 00 00 00 04 6b30 04 7630 00")  # key k0, value v0, no headers
WRONG_RECORDS = {
    "garbage": b"\x7fgarbage" * 9,
    "nothing": b"",
    "zeros": bytes(40),
    "one byte": b"\x02",
    "cut short": RECORD[:-3],
    "longer than it says": b"\x12" + RECORD[1:],
    "shorter than it says": b"\x16" + RECORD[1:] + b"\0",
    "length below zero": b"\x01" + RECORD[1:],
    "key beyond the record": RECORD[:4] + b"\x40" + RECORD[5:],
    "value beyond the record": RECORD[:7] + b"\x40" + RECORD[8:],
    "headers beyond the record": RECORD[:-1] + b"\x10",
    "headers below zero": RECORD[:-1] + b"\x01",
    "header without a key": b"\x18" + RECORD[1:-1] + b"\x02\x01\x01",
    "bytes behind it": RECORD + b"\0\0\0",
    "another record behind it": RECORD + RECORD,
    "endless varint": b"\xff" * 12,
    "endless timestamp": RECORD[:2] + b"\xff" * 12,
    "another offset": RECORD[:3] + b"\x0a" + RECORD[4:],
}


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("wrong", WRONG_RECORDS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_does_not_parse(conversation: Conversation, version: int, codec: str, wrong: str) -> None:
    """The checksum and the compression are correct."""
    if codec == "zstd" and version < 7:
        pytest.skip("zstd needs v7")
    body = COMPRESSORS[CODECS[codec]](WRONG_RECORDS[wrong])
    try_to_write(conversation, version, batch(records(1), CODECS[codec], body=body))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("at", [0, 1, 2, 7, 9])
@pytest.mark.parametrize("codec", CODECS)
def test_a_record_among_others_that_does_not_parse(
    conversation: Conversation, version: int, codec: str, at: int
) -> None:
    if codec == "zstd" and version < 7:
        pytest.skip("zstd needs v7")
    body = b"".join(
        (RECORD[:3] + bytes([2 * number]) + RECORD[4:]) if number != at else b"\x17garbage" * 2 for number in range(10)
    )
    try_to_write(conversation, version, batch(records(10), CODECS[codec], body=COMPRESSORS[CODECS[codec]](body)))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(conversation: Conversation, version: int, codec: int) -> None:
    try_to_write(conversation, version, batch(records(1), attributes=codec))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize(
    "wrong", [{"base_offset": 5}, {"base_offset": -1}, {"leader_epoch": 7}, {"attributes": LOG_APPEND_TIME}], ids=str
)
def test_fields_that_the_server_sets(conversation: Conversation, version: int, wrong: dict[str, Any]) -> None:
    try_to_write(conversation, version, batch(records(2), **wrong))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("attributes", [0x40, 0x80, 0x4000])
def test_unused_attribute_bits(conversation: Conversation, version: int, attributes: int) -> None:
    try_to_write(conversation, version, batch(records(2), attributes=attributes))


@case("Produce", [3, 8, 11])
@pytest.mark.parametrize("wrong", [T0_MS + 99, 0, -1, 2**63 - 1])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_wrong_max_timestamp(conversation: Conversation, version: int, wrong: int, codec: str) -> None:
    """The server computes the correct one itself."""
    try_to_write(conversation, version, batch(records(2), CODECS[codec], max_timestamp_ms=wrong))


@case("Produce", [3, 8, 11])
def test_control_batch(conversation: Conversation, version: int) -> None:
    content = [Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, 1))]
    try_to_write(conversation, version, batch(content, attributes=CONTROL))
    try_to_write(conversation, version, batch(content, attributes=CONTROL | TRANSACTIONAL, producer=(4711, 0, 0)))


@case("Produce", SINCE_V3)
def test_transactional_batch_without_transaction(conversation: Conversation, version: int) -> None:
    transactional_id = conversation.names.prefix + "tx"
    await_coordinator(conversation, transactional_id)
    data = batch(records(1), attributes=TRANSACTIONAL, producer=(4711, 0, 0))
    try_to_write(conversation, version, data, transactional_id=transactional_id)


@case("Produce", [3, 8, 11])
def test_transactional_batch_without_transactional_id(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, batch(records(1), attributes=TRANSACTIONAL, producer=(4711, 0, 0)))


@case("Produce", SINCE_V3)
def test_transactional_id_on_a_plain_batch(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, batch(records(1)), transactional_id=conversation.names.prefix + "tx")
