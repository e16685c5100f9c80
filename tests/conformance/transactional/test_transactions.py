"""The transaction coordinator: InitProducerId (22) with a transactional id, EndTxn (26), FindCoordinator (10) of
type 1, and transactions that time out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.requests import produce
from tests.conformance.transactions import (
    FLEXIBLE,
    FOREIGN_IDENTITIES,
    LONG_ID,
    LONGER_ID,
    OF_CLIENTS,
    TIMEOUT_MS,
    TRANSACTION,
    UNKNOWN_ID,
    Transactional,
    adding,
    await_state,
    describe,
    init,
    new_transactional_id,
    read_committed,
    shared_topic,
    unnoted,
    when_free,
)

MAX_TIMEOUT_MS = 900_000
SHORT_TIMEOUT_MS = 4_000
"""Long enough to write a record before it: a busy machine may need half a second."""


def note_identity(conversation: Conversation, before: tuple[int, int], answer: dict[str, Any]) -> tuple[int, int]:
    """Record whether the producer's id changed: every server chooses ids itself."""
    conversation.say(answer["producer_id"] == before[0])
    return answer["producer_id"], answer["producer_epoch"]


@case("InitProducerId")
def test_each_call_bumps_the_epoch(conversation: Conversation, version: int) -> None:
    transactional_id = new_transactional_id(conversation)
    before = (-1, -1)
    for _ in range(3):
        before = note_identity(conversation, before, init(conversation, version, transactional_id))
    describe(conversation, transactional_id)


@case("InitProducerId")
@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 1, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1, 2**31 - 1])
def test_timeout(conversation: Conversation, version: int, timeout_ms: int) -> None:
    transactional_id = new_transactional_id(conversation)
    init(conversation, version, transactional_id, timeout_ms=timeout_ms)
    describe(conversation, transactional_id)


@case("InitProducerId")
def test_timeout_changes(conversation: Conversation, version: int) -> None:
    transactional_id = new_transactional_id(conversation)
    for timeout_ms in (TIMEOUT_MS, 1000, MAX_TIMEOUT_MS + 1, 2000):
        init(conversation, version, transactional_id, timeout_ms=timeout_ms)
        describe(conversation, transactional_id)


@case("InitProducerId")
def test_long_id(conversation: Conversation, version: int) -> None:
    init(conversation, version, conversation.names.prefix + LONG_ID)


@case("InitProducerId", range(FLEXIBLE["InitProducerId"], 6))
def test_longer_id_than_a_record_can_name(conversation: Conversation, version: int) -> None:
    init(conversation, version, conversation.names.prefix + LONGER_ID)
    init(conversation, version, new_transactional_id(conversation))


@case("InitProducerId", [3, 4, 5])
@pytest.mark.parametrize("half", [(UNKNOWN_ID, -1), (-1, 0), (-2, 0), (0, -2), (-2, -2)], ids=str)
def test_half_an_identity(conversation: Conversation, version: int, half: tuple[int, int]) -> None:
    producer = Transactional(conversation)
    producer.init(version, producer_id=half[0], producer_epoch=half[1])


@case("InitProducerId", [3, 4, 5])
def test_expected_identity(conversation: Conversation, version: int) -> None:
    """KIP-360: a producer that names its id and epoch gets the next epoch; at a retry, the same response."""
    producer = Transactional(conversation)
    identity = (producer.id, producer.epoch)
    for epoch in (0, 0, 1, 0, 5):
        answer = producer.init(version, producer_id=producer.id, producer_epoch=epoch)
        note_identity(conversation, identity, answer)
    producer.init(version)
    producer.init(version, producer_id=producer.id, producer_epoch=0)


@case("InitProducerId", [3, 4, 5])
@pytest.mark.parametrize("epoch", [0, 7])
def test_identity_of_another(conversation: Conversation, version: int, epoch: int) -> None:
    producer, other = Transactional(conversation), Transactional(conversation)
    producer.init(version, producer_id=other.id, producer_epoch=epoch)
    producer.init(version, producer_id=UNKNOWN_ID, producer_epoch=epoch)


@case("InitProducerId", [3, 4, 5])
def test_identity_of_an_unknown_transactional_id(conversation: Conversation, version: int) -> None:
    """The id has expired: a producer that still uses it continues with the id and epoch that it names, or others."""
    transactional_id = new_transactional_id(conversation)
    answer = init(conversation, version, transactional_id, producer_id=UNKNOWN_ID, producer_epoch=3)
    note_identity(conversation, (UNKNOWN_ID, 3), answer)
    init(conversation, version, transactional_id)


@case("InitProducerId")
def test_open_transaction_is_aborted(conversation: Conversation, version: int) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.begin(topic, 2)
    answer = producer.init(version)
    note_identity(conversation, (producer.id, 0), answer)
    read_committed(conversation, topic, 0)
    for api_version in range(5):
        producer.end(api_version, committed=True)
    for api_version in OF_CLIENTS:
        producer.add(api_version, {topic: [0]})
    describe(conversation, producer.transactional_id)


@case("InitProducerId", [3, 4, 5])
def test_open_transaction_is_aborted_by_its_own_producer(conversation: Conversation, version: int) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.begin(topic)
    answer = producer.init(version, producer_id=producer.id, producer_epoch=producer.epoch)
    note_identity(conversation, (producer.id, 0), answer)
    read_committed(conversation, topic, 0)
    producer.end(version - 1, committed=False)


@case("InitProducerId")
def test_concurrent_with_an_open_transaction(conversation: Conversation, version: int) -> None:
    """The first response is CONCURRENT_TRANSACTIONS, because it fences the producer immediately."""
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.begin(topic)
    fields: dict[str, Any] = {"transactional_id": producer.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
    named = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    conversation.call("InitProducerId", version, **fields, **named)
    await_state(conversation, producer.transactional_id, "CompleteAbort")
    describe(conversation, producer.transactional_id)
    producer.end(3, committed=True)


@case("EndTxn")
@pytest.mark.parametrize("committed", [True, False])
def test_end_twice(conversation: Conversation, version: int, committed: bool) -> None:
    """The same end again is a retry; the other one is refused."""
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.begin(topic)
    for again in (committed, committed, not committed, committed):
        producer.end(version, committed=again)
    describe(conversation, producer.transactional_id)
    read_committed(conversation, topic, 0)


@case("EndTxn")
@pytest.mark.parametrize("committed", [True, False])
def test_end_of_nothing(conversation: Conversation, version: int, committed: bool) -> None:
    producer = Transactional(conversation)
    producer.end(version, committed=committed)
    describe(conversation, producer.transactional_id)


@case("EndTxn")
@pytest.mark.parametrize("committed", [True, False])
def test_end_without_records(conversation: Conversation, version: int, committed: bool) -> None:
    """The partition gets a marker nevertheless."""
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.add(2, {topic: [0]})
    producer.end(version, committed=committed)
    await_state(conversation, producer.transactional_id, "CompleteCommit", "CompleteAbort")
    read_committed(conversation, topic, 0)


@case("EndTxn")
@pytest.mark.parametrize("foreign", FOREIGN_IDENTITIES, ids=str)
def test_end_of_a_foreign_producer(conversation: Conversation, version: int, foreign: dict[str, Any]) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.begin(topic)
    producer.end(version, committed=True, **foreign)
    describe(conversation, producer.transactional_id)
    read_committed(conversation, topic, 0)
    producer.finish(committed=True)


@case("EndTxn", range(5))
def test_end_after_another_client_named_the_producer(conversation: Conversation, version: int) -> None:
    """The other client has a transactional id of its own, and a newer connection."""
    producer, name = Transactional(conversation), new_transactional_id(conversation)
    producer.begin(shared_topic(conversation))
    other, identity = conversation.connect(), producer.identity(transactional_id=name, committed=True)
    conversation.receive("EndTxn", version, other.send("EndTxn", version, **identity), other)
    producer.end(version, committed=True)


@case("EndTxn", range(FLEXIBLE["EndTxn"], 5))
def test_end_of_a_long_id(conversation: Conversation, version: int) -> None:
    Transactional(conversation).end(version, committed=True, transactional_id=LONGER_ID)


@case("EndTxn")
def test_many_transactions(conversation: Conversation, version: int) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    for number in range(6):
        producer.begin(topic, 1, 0, 1, prefix=f"n{number}-")
        producer.end(version, committed=number % 2 == 0)
    await_state(conversation, producer.transactional_id, "CompleteAbort")
    read_committed(conversation, topic, 0)


@case("EndTxn")
def test_timed_out(conversation: Conversation, version: int) -> None:
    """The coordinator aborts with a new epoch: the producer is fenced."""
    topic = shared_topic(conversation)
    producer = Transactional(conversation, timeout_ms=SHORT_TIMEOUT_MS)
    producer.begin(topic, 2)
    await_state(conversation, producer.transactional_id, "CompleteAbort")
    read_committed(conversation, topic, 0)
    producer.end(version, committed=True)
    producer.end(version, committed=False)
    for api_version in OF_CLIENTS:
        producer.add(api_version, {topic: [0]})
    data = producer.data(sequence=2)
    for api_version in (3, 8, 9, 11):
        produce(conversation, api_version, topic, data, transactional_id=producer.transactional_id)
    describe(conversation, producer.transactional_id)
    producer.init(min(version, 5))
    describe(conversation, producer.transactional_id)


@case("InitProducerId", [3, 4, 5])
def test_timed_out_producer_continues(conversation: Conversation, version: int) -> None:
    """KIP-360: the producer names its id and epoch, whose epoch was raised once."""
    topic = shared_topic(conversation)
    producer = Transactional(conversation, timeout_ms=SHORT_TIMEOUT_MS)
    producer.begin(topic)
    await_state(conversation, producer.transactional_id, "CompleteAbort")
    answer = producer.init(version, producer_id=producer.id, producer_epoch=producer.epoch)
    note_identity(conversation, (producer.id, 0), answer)


@case("FindCoordinator", [4, 5, 6])
def test_find_several(conversation: Conversation, version: int) -> None:
    keys = [new_transactional_id(conversation) for _ in range(2)]
    ask = {"key_type": TRANSACTION}
    when_free(conversation, "FindCoordinator", version, coordinator_keys=[*keys, keys[0], ""], **ask)
    when_free(conversation, "FindCoordinator", version, coordinator_keys=[], **ask)


@case("FindCoordinator", range(1, 7))
def test_find_empty_id(conversation: Conversation, version: int) -> None:
    new_transactional_id(conversation)
    keys: dict[str, Any] = {"coordinator_keys": [""]} if version >= 4 else {"key": ""}
    conversation.call("FindCoordinator", version, key_type=TRANSACTION, **keys)


@case("InitProducerId", [4])
def test_requests_before_the_producer_is_known(conversation: Conversation, version: int) -> None:
    """A transactional id without InitProducerId."""
    transactional_id, topic = new_transactional_id(conversation), shared_topic(conversation)
    identity = {"transactional_id": transactional_id, "producer_id": 0, "producer_epoch": 0}
    for api_version in OF_CLIENTS:
        when_free(conversation, "AddPartitionsToTxn", api_version, **adding(identity, {topic: [0]}))
    for api_version in range(5):
        when_free(conversation, "EndTxn", api_version, committed=True, **identity)
    describe(conversation, transactional_id)
    unnoted(conversation, lambda: init(conversation, version, transactional_id))
    describe(conversation, transactional_id)
