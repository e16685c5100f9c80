"""Quotas of users, with and without client ids: which one decides, and who shares it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, Pair, case
from tests.conformance.records import records
from tests.conformance.requests import encode_records, produce_fields
from tests.conformance.security.test_quotas import Limited, note_wait
from tests.conformance.security.test_security_apis import DEFAULT, EXACT, component, entry, op
from tests.integration.native import wait_for
from tests.support.raw_client import encode_request

USER, CLIENT = "user", "client-id"
ME = "ANONYMOUS"
QUOTA = "producer_byte_rate"
LITTLE, MUCH = 1, 10**9
Entity = dict[str, str | None]


@pytest.fixture
def pair(pair_on_secured_pulsar: Pair) -> Pair:
    return pair_on_secured_pulsar


def levels(client_id: str) -> list[Entity]:
    """The entities that have a say about a client, the strongest one first (KIP-55)."""
    return [
        {USER: ME, CLIENT: client_id}, {USER: ME, CLIENT: None}, {USER: ME},
        {USER: None, CLIENT: client_id}, {USER: None, CLIENT: None}, {USER: None},
        {CLIENT: client_id}, {CLIENT: None},
    ]  # fmt: skip


@contextmanager
def bounded(conversation: Conversation, quotas: list[tuple[Entity, int]]) -> Iterator[None]:
    """The entities have these quotas, all of them within a request."""
    try:
        alter(conversation, [(entity, op(QUOTA, value)) for entity, value in quotas])
        yield
    finally:
        alter(conversation, [(entity, op(QUOTA, remove=True)) for entity, _ in quotas])


def alter(conversation: Conversation, changes: list[tuple[Entity, dict[str, object]]]) -> None:
    entries = [entry(entity, change) for entity, change in changes]
    answer = conversation.client.call("AlterClientQuotas", 1, entries=entries, validate_only=False)
    assert not any(row["error_code"] for row in answer["entries"]), answer


def until_described(conversation: Conversation, entity: Entity) -> None:
    wanted = [component(kind, EXACT if name else DEFAULT, name) for kind, name in entity.items()]
    wait_for(
        lambda: conversation.client.call("DescribeClientQuotas", 1, components=wanted, strict=True)["entries"],
        "the quota is known",
    )


def until(conversation: Conversation, topic: str, client_id: str, *, waits: bool) -> bool:
    """Whether the client has to wait: what is asked for, unless that does not come about. Each request has a connection
    of its own, since one that has to wait is mute."""
    fields = produce_fields(7, {topic: {0: encode_records(records(20), 2)}})
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        client = Limited(conversation, client_id)
        found = bool(client.call("Produce", 7, **fields)["throttle_time_ms"])
        client.close()
        if found is waits or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


@case("Produce", [7])
@pytest.mark.parametrize("number", range(7), ids=lambda number: "+".join(levels("client")[number]) + f" {number}")
def test_which_quota_decides(conversation: Conversation, version: int, number: int) -> None:
    """Each entity in turn, above all the weaker ones."""
    topic = conversation.topic("quota-levels")
    for own, others in ((LITTLE, MUCH), (MUCH, LITTLE)):
        client_id = f"limited-{uuid.uuid4()}"
        decides, *weaker = levels(client_id)[number:]
        with bounded(conversation, [(decides, own), *((entity, others) for entity in weaker)]):
            conversation.say({"waits": until(conversation, topic, client_id, waits=own == LITTLE)})


@case("Produce", [7])
def test_a_quota_of_all_clients(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("quota-levels")
    for entity in levels("")[1], levels("")[4], levels("")[7]:
        with bounded(conversation, [(entity, LITTLE)]):
            conversation.say(until(conversation, topic, f"limited-{uuid.uuid4()}", waits=True))


def batch_bytes(client_id: str, topic: str) -> int:
    fields = produce_fields(7, {topic: {0: encode_records(records(20), 2)}})
    return len(encode_request("Produce", 7, fields, client_id=client_id))


@case("Produce", [7])
@pytest.mark.parametrize("of_user", [False, True])
def test_connections_of_a_client_share_its_quota(conversation: Conversation, version: int, *, of_user: bool) -> None:
    """Two batches are within it. Each is sent on a connection of its own."""
    topic, client_id = conversation.topic("quota-shared"), f"limited-{uuid.uuid4()}"
    size_bytes = batch_bytes(client_id, topic)
    bound = size_bytes // 5 + 1
    fields = {**produce_fields(version, {topic: {0: encode_records(records(20), 2)}}), "timeout_ms": 60_000}
    entity: Entity = {USER: ME, CLIENT: client_id} if of_user else {CLIENT: client_id}
    with bounded(conversation, [(entity, bound)]):
        until_described(conversation, entity)
        for number in range(1, 5):
            answer = Limited(conversation, client_id).call("Produce", version, **fields)
            note_wait(conversation, answer, max(0, (number * size_bytes / 10 - bound) / bound * 10_000))


@case("Produce", [7])
@pytest.mark.parametrize("entity", [{USER: ME}, {USER: None}, {USER: ME, CLIENT: None}, {CLIENT: None}], ids=repr)
def test_clients_of_a_user_share_its_quota(conversation: Conversation, version: int, entity: Entity) -> None:
    """Not if the quota is one of each client id. Each client sends a batch, of which each may send five."""
    topic = conversation.topic("quota-shared")
    fields = produce_fields(version, {topic: {0: encode_records(records(20), 2)}})
    with bounded(conversation, [(entity, batch_bytes("x" * 44, topic) // 2)]):
        until_described(conversation, entity)
        clients = [Limited(conversation) for _ in range(12)]
        waits_ms = [client.call("Produce", version, **fields)["throttle_time_ms"] for client in clients]
        conversation.say({"waits": max(waits_ms) > 0})
