"""What a connection keeps of idempotent batches that were refused with a retriable error."""

from contextlib import nullcontext

import pytest

from gateway.errors import KafkaError
from gateway.log.writing.refused_batches import MAX_REFUSED, RefusedBatches
from gateway.topics.topic_names import MAX_NAME_LENGTH
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


class Log:
    """Its producer has written all batches before ``next_sequence``."""

    def __init__(self, next_sequence: int) -> None:
        self.next_sequence = next_sequence

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        return sequence < self.next_sequence


def test_a_refused_batch_that_another_leader_wrote_is_not_waited_for() -> None:
    refused = RefusedBatches()
    refused.refuse("t", 0, batch(3), PASSING)
    with pytest.raises(KafkaError):
        refused.check("t", 0, batch(4), Log(3))
    refused.check("t", 0, batch(500), Log(500))
    refused.check("t", 0, batch(501))


def test_a_producer_that_got_the_refusal_may_continue() -> None:
    """With five batches in flight, the sixth is sent when the first is answered. The log has none of them."""
    refused = RefusedBatches()
    for sequence in range(3, 8):
        with pytest.raises(KafkaError) if sequence > 3 else nullcontext():
            refused.check("t", 0, batch(sequence), Log(0))
        refused.refuse("t", 0, batch(sequence), PASSING)
    refused.check("t", 0, batch(500), Log(0))


def test_a_batch_that_is_refused_again_holds_up_its_followers_anew() -> None:
    refused = RefusedBatches()
    for _ in range(3):
        for sequence in range(3, 8):
            refused.refuse("t", 0, batch(sequence), PASSING)
    refused.refuse("t", 0, batch(3), PASSING)
    with pytest.raises(KafkaError):
        refused.check("t", 0, batch(4))


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


@pytest.mark.parametrize("topic", ["x" * (MAX_NAME_LENGTH + 1), "x" * 30_000, "\U0001f600", ""], ids=len)
def test_what_cannot_be_a_topic_is_not_remembered(topic: str) -> None:
    """Its batches are never written, so they have no order; and a name may have 32 KB."""
    refused = RefusedBatches()
    refused.refuse(topic, 0, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refused.check(topic, 0, batch(5))
    assert len(refused) == 0
    refused.refuse("x" * MAX_NAME_LENGTH, 0, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(refused) == 1


def test_memory_is_bounded() -> None:
    refused = RefusedBatches()
    for partition in range(MAX_REFUSED + 1):
        refused.refuse("t", partition, batch(0), PASSING)
    refused.check("t", 0, batch(5))
    with pytest.raises(KafkaError):
        refused.check("t", MAX_REFUSED, batch(5))
