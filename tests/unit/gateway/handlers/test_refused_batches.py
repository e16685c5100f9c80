"""What a connection remembers of idempotent batches that were refused for the moment."""

import pytest

from gateway.handlers.refused_batches import MAX_REFUSED, RefusedBatches
from gateway.storage.errors import KafkaError
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch

TEMPLATE = parse_header(encode_batch([Record(0, 0, None, b"value", ())], base_offset=0))
PASSING = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return TEMPLATE._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_later_batches_wait_until_the_refused_one_comes_again() -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, batch(0), PASSING)
    refused.refuse("t", 0, batch(10), PASSING)
    for sequence in (10, 20, 2**30 - 1):
        with pytest.raises(KafkaError) as error:
            refused.check("t", 0, batch(sequence))
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused.check("t", 0, batch(0))
    refused.check("t", 0, batch(10))


def test_sequences_wrap_around() -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, batch(2**31 - 5), PASSING)
    with pytest.raises(KafkaError):
        refused.check("t", 0, batch(5))
    refused.check("t", 0, batch(2**31 - 5))


def test_an_earlier_batch_may_come() -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, batch(10), PASSING)
    refused.check("t", 0, batch(0))
    refused.check("t", 0, batch(20))


@pytest.mark.parametrize(
    "other",
    [("u", 0, batch(5)), ("t", 1, batch(5)), ("t", 0, batch(5, producer_id=8)), ("t", 0, batch(5, epoch=1))],
    ids=["topic", "partition", "producer", "epoch"],
)
def test_others_do_not_wait(other: tuple[str, int, BatchHeader]) -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, batch(0), PASSING)
    refused.check(*other)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (batch(0, producer_id=-1), PASSING),
        (batch(0), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(0), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
    ids=["not idempotent", "for good", "out of order itself"],
)
def test_only_what_will_come_again_is_remembered(header: BatchHeader, code: ErrorCode) -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, header, code)
    refused.check("t", 0, header._replace(base_sequence=5))


def test_memory_is_bounded() -> None:
    refused = RefusedBatches()
    for partition in range(MAX_REFUSED + 1):
        refused.refuse("t", partition, batch(0), PASSING)
    refused.check("t", 0, batch(5))
    with pytest.raises(KafkaError):
        refused.check("t", MAX_REFUSED, batch(5))
