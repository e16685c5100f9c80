"""Message sets of old producers become batches; Kafka 3.9.2's bytes go in, kafka-python reads what comes out."""

import json
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatch

from protocol.kafka.batch import CorruptBatch, InvalidBatch, InvalidTimestamp, check_batch, parse_header
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.up_conversion import up_convert

KAFKA = json.loads((Path(__file__).parent / "kafka_3_9_2_records.json").read_text())
CODECS = ["none", "gzip", "snappy", "lz4"]
T0 = 1_700_000_000_000
MAX_BYTES = 1 << 20


def message(magic: int = 1, timestamp: int = T0) -> LegacyMessage:
    return LegacyMessage(magic, 0, 0, timestamp if magic else -1, b"k", b"v")


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize(("magic", "times"), [(0, [-1, -1, -1]), (1, [T0, T0 + 123, T0 - 1])])
def test_records_and_codec_stay_and_offsets_start_at_0(magic: int, times: list[int], codec: int) -> None:
    batch = up_convert(
        memoryview(bytes.fromhex(KAFKA[f"magic {magic}, {CODECS[codec]}, create time"])), max_bytes=MAX_BYTES
    )
    header, witness = parse_header(batch), DefaultRecordBatch(batch)
    check_batch(memoryview(batch), 0, header)
    assert (header.size_bytes, header.compression, header.max_timestamp) == (len(batch), codec, max(times))
    assert [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in witness] == [
        (0, times[0], b"k1", b"value value value value", []),
        (1, times[1], None, b"v2", []),
        (2, times[2], b"k3", None, []),
    ]


def test_a_batch_passes_through() -> None:
    batch = encode_batch([Record(0, T0, b"k", b"v", (("h", b"x"),))], compression=4)
    assert up_convert(memoryview(batch), max_bytes=MAX_BYTES) == batch


def test_an_empty_set_stays_empty() -> None:
    assert up_convert(memoryview(b""), max_bytes=MAX_BYTES) == b""


def test_a_time_that_clients_may_not_choose_is_dropped() -> None:
    batch = up_convert(bytes.fromhex(KAFKA["magic 1, gzip, log append time"]), max_bytes=MAX_BYTES)
    header = parse_header(batch)
    assert (header.log_append_time, header.max_timestamp) == (False, T0 + 999)


PLAIN = encode_message_set([message()])
WRAPPED = encode_message_set([message()], 1)
BATCH = bytes(encode_batch([Record(0, T0, b"k", b"v")]))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(encode_message_set([message(magic=0)]) + PLAIN, InvalidBatch, id="several magics"),
        pytest.param(WRAPPED * 2, InvalidBatch, id="two wrappers"),
        pytest.param(WRAPPED + PLAIN, InvalidBatch, id="wrapper and message"),
        pytest.param(encode_message_set([message(timestamp=-2)]), InvalidTimestamp, id="timestamp -2"),
        pytest.param(PLAIN + bytes(16), CorruptBatch, id="trailing bytes"),
        pytest.param(BATCH * 2, InvalidBatch, id="two batches"),
        pytest.param(BATCH + PLAIN, InvalidBatch, id="batch and message"),
        pytest.param(PLAIN + BATCH, InvalidBatch, id="message and batch"),
        pytest.param(BATCH[:-1] + b"\1", CorruptBatch, id="batch damaged"),
    ],
)
def test_what_kafka_refuses_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        up_convert(memoryview(data), max_bytes=MAX_BYTES)


@pytest.mark.parametrize("first", [b"", PLAIN, BATCH], ids=["nothing", "message", "batch"])
@pytest.mark.parametrize("cut", [PLAIN[:-1], PLAIN[:10], WRAPPED[:-1], BATCH[:-1], BATCH[:20]])
def test_what_is_cut_short_is_left_out(first: bytes, cut: bytes) -> None:
    assert up_convert(first + cut, max_bytes=MAX_BYTES) == up_convert(first, max_bytes=MAX_BYTES)


def test_a_wrapper_may_not_unfold_past_the_limit() -> None:
    data = encode_message_set([LegacyMessage(1, 0, 0, T0, None, bytes(10_000))], 1)
    with pytest.raises(InvalidBatch):
        up_convert(data, max_bytes=10_000)
