"""Message sets v0 and v1 (magic 0 and 1) in Produce v0 to v2: wrappers, offsets, corruption."""

from __future__ import annotations

import gzip

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import (
    CODECS,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    ZSTD,
    Record,
    batch,
    message,
    message_set,
    records,
)
from tests.conformance.requests import try_to_write

BEFORE_V3 = range(3)


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_wrapped_messages(conversation: Conversation, version: int, magic: int, codec: str) -> None:
    try_to_write(conversation, version, message_set(records(5), magic, CODECS[codec]))


@case("Produce", BEFORE_V3)
def test_two_wrappers_in_one_set(conversation: Conversation, version: int) -> None:
    data = message_set(records(2), 1, GZIP) + message_set(records(3), 1, SNAPPY)
    try_to_write(conversation, version, data)


@case("Produce", BEFORE_V3)
def test_messages_of_both_formats(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, message_set(records(2), 0) + message_set(records(2), 1))


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("magic", [0, 1])
def test_last_message_cut_short(conversation: Conversation, version: int, magic: int) -> None:
    try_to_write(conversation, version, message_set(records(3), magic)[:-5])


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("magic", [0, 1])
def test_last_message_in_a_wrapper_cut_short(conversation: Conversation, version: int, magic: int) -> None:
    inner = gzip.compress(message_set(records(3), magic)[:-5])
    try_to_write(conversation, version, message(Record(inner), magic, offset=2, codec=GZIP))


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("size", [20, 61, -1])
def test_batch_cut_short_in_an_old_request(conversation: Conversation, version: int, size: int) -> None:
    try_to_write(conversation, version, batch(records(2))[:size])


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("size", [5, 20, -1])
def test_second_batch_cut_short(conversation: Conversation, version: int, size: int) -> None:
    try_to_write(conversation, version, batch(records(1)) + batch(records(2))[:size])


@case("Produce", BEFORE_V3)
def test_wrapper_around_garbage(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, message(Record(b"not gzip at all"), 1, codec=GZIP))


@case("Produce", BEFORE_V3)
def test_wrapper_around_nothing(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, message(Record(None), 1, codec=GZIP))


@case("Produce", BEFORE_V3)
def test_wrapper_in_a_wrapper(conversation: Conversation, version: int) -> None:
    inner = message_set(records(2), 1, GZIP)
    try_to_write(conversation, version, message(Record(gzip.compress(inner)), 1, offset=1, codec=GZIP))


@case("Produce", BEFORE_V3)
def test_absolute_inner_offsets_in_v1(conversation: Conversation, version: int) -> None:
    inner = b"".join(message(record, 1, offset=7 + n) for n, record in enumerate(records(2)))
    try_to_write(conversation, version, message(Record(gzip.compress(inner)), 1, offset=8, codec=GZIP))


@case("Produce", [1])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_without_timestamp(conversation: Conversation, version: int, magic: int) -> None:
    try_to_write(conversation, version, message_set([Record(b"v", b"k", -1)], magic))


@case("Produce", BEFORE_V3)
@pytest.mark.parametrize("codec", [ZSTD, 5, 7])
def test_unknown_codec_in_messages(conversation: Conversation, version: int, codec: int) -> None:
    try_to_write(conversation, version, message(Record(b"v"), 1, attributes=codec))


@case("Produce", [0])
def test_old_lz4_frame_checksum(conversation: Conversation, version: int) -> None:
    """KAFKA-3160: in v0 the checksum covers the magic number; the correct checksum is accepted in v1 only."""
    try_to_write(conversation, version, message_set(records(3), 0, LZ4))


@case("Produce", [2])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_from_a_client(conversation: Conversation, version: int, codec: str) -> None:
    plain = [message(record, 1, offset=n, attributes=LOG_APPEND_TIME) for n, record in enumerate(records(2))]
    inner = b"".join(plain)
    if codec == "none":
        try_to_write(conversation, version, inner)
    else:
        wrapper = Record(gzip.compress(inner))
        try_to_write(conversation, version, message(wrapper, 1, offset=1, codec=GZIP, attributes=LOG_APPEND_TIME))
