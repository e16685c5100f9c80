"""Record formats against bytes that Apache Kafka wrote (kafka_transaction_log.json)."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state_machine import MalformedRecordError
from coordinator.topics import TopicPartition
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.records.transaction_log import BARRIER, decode_transaction, encode_transaction
from coordinator.transaction.states import TransactionState

KAFKA: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_transaction_log.json").read_text())
CLASSES = KAFKA["written by the classes of Apache Kafka 4.2.0"]
LOG = KAFKA["log of Apache Kafka 3.9.2: commit of other-1 and other-0, abort of other-0"]
KEY = bytes.fromhex(CLASSES["TransactionLogKey v0"])
PARTITIONS = frozenset({TopicPartition("söme", 5), TopicPartition("topic", 0), TopicPartition("topic", 300)})


def transaction(state: TransactionState, **changes: Any) -> TransactionMetadata:
    fields: dict[str, Any] = {
        "producer_id": 1_234_567_890_123,
        "producer_epoch": 7,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": PARTITIONS,
        "last_update_ms": 1_700_000_000_123,
        "start_ms": 1_700_000_000_000,
    }
    return TransactionMetadata(**(fields | changes))


EMPTY = transaction(TransactionState.EMPTY, partitions=frozenset(), start_ms=-1)
ONGOING = transaction(TransactionState.ONGOING)
COMPLETE = transaction(TransactionState.COMPLETE_ABORT, partitions=frozenset())
PREPARED = transaction(TransactionState.PREPARE_COMMIT)


@pytest.mark.parametrize(
    ("name", "version", "value"),
    [
        ("v0 Empty", 0, EMPTY),
        ("v0 Ongoing", 0, ONGOING),
        ("v0 CompleteAbort", 0, COMPLETE),
        ("v0 PrepareCommit", 0, PREPARED),
        ("v1 Empty", 1, EMPTY),
        ("v1 Ongoing", 1, ONGOING),
        ("v1 CompleteAbort", 1, transaction(TransactionState.COMPLETE_ABORT, partitions=frozenset(), client_version=2)),
        (
            "v1 PrepareCommit",
            1,
            transaction(TransactionState.PREPARE_COMMIT, previous_producer_id=11, next_producer_id=22),
        ),
    ],
)
def test_kafkas_bytes(name: str, version: int, value: TransactionMetadata) -> None:
    kafkas = (KEY, bytes.fromhex(CLASSES[f"TransactionLogValue {name}"]))
    assert encode_transaction("trän", value, version) == kafkas
    assert decode_transaction(*kafkas) == ("trän", value)


def test_a_log_of_kafka() -> None:
    records = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in LOG]
    both, first = {TopicPartition("other", 0), TopicPartition("other", 1)}, {TopicPartition("other", 0)}
    states: list[tuple[str, set[TopicPartition]]] = []
    for key, value in records:
        decoded = decode_transaction(key, value)
        assert decoded is not None
        transactional_id, metadata = decoded
        assert transactional_id == "trän"
        assert metadata is not None
        assert (metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms) == (0, 0, 60_000)
        states.append((metadata.state.value, set(metadata.partitions)))
    assert states == [
        ("Empty", set()),
        ("Ongoing", both),
        ("PrepareCommit", both),
        ("CompleteCommit", set()),
        ("Ongoing", first),
        ("PrepareAbort", first),
        ("CompleteAbort", set()),
    ]


def test_tombstones() -> None:
    assert decode_transaction(*encode_transaction("t", None, 1)) == ("t", None)
    assert decode_transaction(*BARRIER) == ("", None)


def test_unknown_keys_are_passed_over() -> None:
    assert decode_transaction(b"\x00\x01whatever", b"") is None


def test_unknown_tagged_fields_are_passed_over() -> None:
    """Kafka 4.2 has one more (KIP-939)."""
    value = bytes.fromhex(CLASSES["TransactionLogValue v1 Empty"])
    assert decode_transaction(KEY, value[:-1] + b"\x01\x03\x02\x00\x05") == ("trän", EMPTY)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x00\x00", b"\x00\x00\xff\xff", b"\x00\x00\x00\x02\xff\xff"])
def test_malformed_keys(key: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        decode_transaction(key, None)


@pytest.mark.parametrize("name", ["v0 Ongoing", "v1 PrepareCommit"])
def test_values_that_are_cut_short(name: str) -> None:
    value = bytes.fromhex(CLASSES[f"TransactionLogValue {name}"])
    for length in range(len(value)):
        with pytest.raises(MalformedRecordError):
            decode_transaction(KEY, value[:length])


@pytest.mark.parametrize("state", [6, 7, 8, -1])
def test_states_that_are_never_written(state: int) -> None:
    value = bytearray(bytes.fromhex(CLASSES["TransactionLogValue v0 Empty"]))
    value[16] = state & 0xFF
    with pytest.raises(MalformedRecordError):
        decode_transaction(KEY, bytes(value))


def test_an_unknown_version() -> None:
    with pytest.raises(MalformedRecordError):
        decode_transaction(KEY, b"\x00\x02" + bytes(40))


@given(st.binary(max_size=60), st.sampled_from(["v0 Ongoing", "v1 PrepareCommit"]), st.integers(0, 80))
def test_damaged_records_are_refused(junk: bytes, name: str, at: int) -> None:
    value = bytes.fromhex(CLASSES[f"TransactionLogValue {name}"])
    with suppress(MalformedRecordError):
        decode_transaction(KEY, value[:at] + junk + value[at + len(junk) :])


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT64 = st.integers(0, 2**63 - 1)
TRANSACTIONS = st.builds(
    TransactionMetadata,
    producer_id=INT64,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    partitions=st.frozensets(st.builds(TopicPartition, IDS, st.integers(0, 2**31 - 1))),
    last_update_ms=INT64,
    start_ms=st.integers(-1, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.sampled_from([0, 2]),
)


@given(IDS, TRANSACTIONS)
def test_what_is_written_is_read(transactional_id: str, value: TransactionMetadata) -> None:
    assert decode_transaction(*encode_transaction(transactional_id, value, 1)) == (transactional_id, value)


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="format"):
        encode_transaction("x" * 32_768, None, 1)
    with pytest.raises(ValueError):  # The text depends on the version of Python.
        encode_transaction("x", transaction(TransactionState.EMPTY, producer_id=2**63), 1)
