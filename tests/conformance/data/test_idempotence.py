"""Idempotent producers (KIP-98): responses to sequence numbers in and out of order."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import Record, batch, records
from tests.conformance.requests import init_producer_id, produce, produce_fields, read_back

VERSIONS = (3, 5, 8, 9, 11)
WINDOW = 5
LAST_SEQUENCE = 2**31 - 1


class Producer:
    """A new idempotent producer that writes to the shared topic of these cases."""

    def __init__(self, conversation: Conversation, version: int) -> None:
        self.topic = conversation.topic("idempotence", partitions=2)
        conversation.start_here(self.topic)
        self.id, self.epoch = init_producer_id(conversation)
        self._conversation = conversation
        self._version = version

    def write(self, sequence: int, count: int = 1, *, epoch: int | None = None, prefix: str = "r") -> None:
        data = self.data(sequence, count, epoch=epoch, prefix=prefix)
        produce(self._conversation, self._version, self.topic, data)

    def data(self, sequence: int, count: int = 1, *, epoch: int | None = None, prefix: str = "r") -> bytes:
        chosen = self.epoch if epoch is None else epoch
        return batch(records(count, prefix=prefix), producer=(self.id, chosen, sequence))

    def read_back(self) -> None:
        read_back(self._conversation, self.topic)


@case("Produce", VERSIONS)
def test_in_order(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0, 3)
    producer.write(3, 2)
    producer.write(5)
    producer.read_back()


@case("Produce", VERSIONS)
def test_duplicate_gets_the_first_answer(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0, 3)
    producer.write(3, 2)
    producer.write(3, 2)
    producer.write(0, 3)
    producer.write(5)
    producer.read_back()


@case("Produce", VERSIONS)
def test_duplicates_across_the_window(conversation: Conversation, version: int) -> None:
    """Kafka keeps five batches; an older one is a DUPLICATE_SEQUENCE_NUMBER or out of order."""
    producer = Producer(conversation, version)
    for sequence in range(WINDOW + 2):
        producer.write(sequence)
    for sequence in range(WINDOW + 2):
        producer.write(sequence)
    producer.read_back()


@case("Produce", VERSIONS)
def test_duplicate_with_other_content_or_length(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0, 3)
    producer.write(0, 3, prefix="other")
    producer.write(0, 2)
    producer.write(0, 4)
    producer.write(1, 2)
    producer.read_back()


@case("Produce", VERSIONS)
def test_gap(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0)
    producer.write(2)
    producer.write(1)
    producer.read_back()


@case("Produce", VERSIONS)
@pytest.mark.parametrize("sequence", [1, 100, LAST_SEQUENCE])
def test_first_sequence_of_an_unknown_producer(conversation: Conversation, version: int, sequence: int) -> None:
    producer = Producer(conversation, version)
    producer.write(sequence)
    producer.read_back()


@case("Produce", VERSIONS)
def test_producer_id_that_was_never_allocated(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.id += 2**62
    conversation.names.producer_ids[producer.id] = "<made up>"
    producer.write(0)
    producer.write(0)
    producer.read_back()


@case("Produce", VERSIONS)
def test_sequence_wraps_to_0(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(LAST_SEQUENCE - 1, 3)
    producer.write(1)
    producer.write(LAST_SEQUENCE - 1, 3)
    producer.read_back()


@case("Produce", VERSIONS)
def test_sequence_ends_at_its_maximum(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(LAST_SEQUENCE - 1, 2)
    producer.write(0)
    producer.read_back()


@case("Produce", VERSIONS)
def test_epochs(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0, epoch=3)
    producer.write(1, epoch=2)
    producer.write(5, epoch=4)
    producer.write(0, epoch=4)
    producer.write(1, epoch=3)
    producer.write(0, epoch=4)
    producer.read_back()


@case("Produce", VERSIONS)
@pytest.mark.parametrize(
    "identity", [(-1, 0, 0), (None, -1, 0), (None, 0, -1), (-1, -1, 0), (-2, 0, 0), (None, -5, 0)], ids=str
)
def test_half_an_identity(conversation: Conversation, version: int, identity: tuple[int | None, int, int]) -> None:
    """None stands for an id from InitProducerId."""
    producer = Producer(conversation, version)
    chosen, epoch, sequence = identity
    data = batch([Record(b"v")], producer=(producer.id if chosen is None else chosen, epoch, sequence))
    produce(conversation, version, producer.topic, data)
    produce(conversation, version, producer.topic, data)
    producer.read_back()


@case("Produce", VERSIONS)
def test_partitions_have_their_own_sequences(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0, 2)
    starts = conversation.end_offset(producer.topic, 1)
    fields = produce_fields(version, {producer.topic: {1: producer.data(0)}})
    answer = conversation.call("Produce", version, **fields)
    conversation.answers.pop()
    part = answer["responses"][0]["partition_responses"][0]
    conversation.say((part["error_code"], part["base_offset"] - starts))


@case("Produce", [3, 11])
def test_pipelined_batches_keep_their_order(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    sent = [
        conversation.client.send(
            "Produce", version, **produce_fields(version, {producer.topic: {0: producer.data(sequence)}})
        )
        for sequence in (0, 1, 2, 2, 1, 3, 5, 4)
    ]
    for correlation_id in sent:
        conversation.receive("Produce", version, correlation_id)
    producer.read_back()


@case("Produce", VERSIONS)
def test_refused_batch_leaves_the_sequence_alone(conversation: Conversation, version: int) -> None:
    producer = Producer(conversation, version)
    producer.write(0)
    damaged = bytearray(producer.data(1))
    damaged[-1] ^= 1
    produce(conversation, version, producer.topic, bytes(damaged))
    producer.write(1)
    producer.read_back()
