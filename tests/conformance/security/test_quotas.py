"""Quotas: throttle times, and the requests that are refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, Pair, case
from tests.conformance.records import records
from tests.conformance.requests import encode_records, fetch_fields, fetch_partition, produce_fields
from tests.conformance.security.test_security_apis import EXACT, component, entry, op
from tests.support.raw_client import ConnectionClosedError, RawClient, decode_response, encode_request

OTHER_ADDRESS = "127.0.0.2"
LONG_TIMEOUT_MS = 60_000
TOLERANCE_MS = 1_000
"""A sample: earlier use in it is closer to the end of the window."""
PAUSE_S = 0.05


@pytest.fixture
def pair(pair_on_secured_pulsar: Pair) -> Pair:
    return pair_on_secured_pulsar


class Limited:
    """A client with a client id, and so a quota, of its own."""

    def __init__(self, conversation: Conversation, client_id: str | None = None) -> None:
        self.client_id = client_id or f"limited-{uuid.uuid4()}"
        self._client = conversation.connect()

    def call(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        self._send(api, version, fields)
        return decode_response(api, version, self._client.read_frame())[1]

    def close(self) -> None:
        self._client.close()

    def send_and_reset(self, api: str, version: int, **fields: Any) -> None:
        """Send a request, and break the connection at once."""
        self._send(api, version, fields)
        self._client.reset()

    def _send(self, api: str, version: int, fields: dict[str, Any]) -> None:
        self._client.send_frame(encode_request(api, version, fields, client_id=self.client_id))


@contextmanager
def limited(conversation: Conversation, key: str, value: float) -> Iterator[Limited]:
    client = Limited(conversation)
    entity: dict[str, str | None] = {"client-id": client.client_id}
    set_quota(conversation, entity, op(key, value), 1)
    try:
        yield client
    finally:
        set_quota(conversation, entity, op(key, remove=True), 0)


def set_quota(conversation: Conversation, entity: dict[str, str | None], change: dict[str, Any], entities: int) -> None:
    answer = conversation.client.call("AlterClientQuotas", 1, entries=[entry(entity, change)], validate_only=False)
    assert not answer["entries"][0]["error_code"], answer
    wanted = [component(kind, EXACT, name) for kind, name in entity.items()]
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        found = conversation.client.call("DescribeClientQuotas", 1, components=wanted, strict=True)
        if len(found["entries"]) == entities:
            return
        time.sleep(0.02)
    raise AssertionError(found)


def note_wait(conversation: Conversation, answer: dict[str, Any], expected_ms: float) -> None:
    waits_ms = answer["throttle_time_ms"]
    conversation.say({"waits as expected": abs(waits_ms - expected_ms) <= TOLERANCE_MS or (waits_ms, expected_ms)})


@case("Produce", [3, 7, 11])
def test_produced_bytes(conversation: Conversation, version: int) -> None:
    """(observed - quota) / quota * window, of the request's bytes in ten seconds."""
    topic = conversation.topic("quota-produce")
    fields = produce_fields(version, {topic: {0: encode_records(records(20), 2)}})
    with limited(conversation, "producer_byte_rate", 20) as client:
        size_bytes = len(encode_request("Produce", version, fields, client_id=client.client_id))
        answer = client.call("Produce", version, **fields)
        conversation.say(answer["responses"][0]["partition_responses"][0]["error_code"])
        note_wait(conversation, answer, (size_bytes / 10 - 20) / 20 * 10_000)


@case("Produce", [7, 11])
def test_repeated_requests(conversation: Conversation, version: int) -> None:
    """The bytes of ten seconds are enough for two requests."""
    topic = conversation.topic("quota-repeated")
    fields = {**produce_fields(version, {topic: {0: encode_records(records(20), 2)}}), "timeout_ms": LONG_TIMEOUT_MS}
    request = encode_request("Produce", version, fields, client_id=f"limited-{uuid.uuid4()}")
    bound = len(request) // 5 + 1
    with limited(conversation, "producer_byte_rate", bound) as client:
        for number in range(1, 4):
            answer = client.call("Produce", version, **fields)
            conversation.say(answer["responses"][0]["partition_responses"][0]["error_code"])
            note_wait(conversation, answer, max(0, (number * len(request) / 10 - bound) / bound * 10_000))


@case("Produce", [7])
def test_bytes_of_a_client_that_has_disconnected(conversation: Conversation, version: int) -> None:
    """They are charged, although nobody gets the answer."""
    topic = conversation.topic("quota-left")
    large, small = (produce_fields(version, {topic: {0: encode_records(records(n, size=100), 2)}}) for n in (300, 1))
    large_bytes, small_bytes = (len(encode_request("Produce", version, fields)) for fields in (large, small))
    bound_bytes = large_bytes // 2
    with limited(conversation, "producer_byte_rate", bound_bytes / 10) as client:
        client.send_and_reset("Produce", version, **large)
        again = Limited(conversation, client.client_id)
        calls = range(bound_bytes // (2 * small_bytes))  # so many would not exceed the quota
        conversation.say({"waits": any(waits(again, version, small) for _ in calls)})


def waits(client: Limited, version: int, fields: dict[str, Any]) -> bool:
    """If not, the server may still handle the earlier request."""
    if client.call("Produce", version, **fields)["throttle_time_ms"]:
        return True
    time.sleep(PAUSE_S)
    return False


@case("Fetch", [4, 11, 12])
def test_fetched_bytes(conversation: Conversation, version: int) -> None:
    """The first fetch is within the bytes of a window; the second one is empty, and throttled."""
    topic = conversation.topic(f"quota-fetch-{version}")
    data = encode_records(records(50), 2)
    conversation.client.call("Produce", 7, **produce_fields(7, {topic: {0: data}}))
    asked = [{"topic": topic, "partitions": [fetch_partition(version, 0, 0)]}]
    with limited(conversation, "consumer_byte_rate", len(data) // 8) as client:
        for _ in range(2):
            answer = client.call("Fetch", version, **fetch_fields(version, asked))
            waits = answer["throttle_time_ms"] > 0
            conversation.say({"has rows": bool(answer["responses"]), "waits": waits})
            conversation.say({"session": answer.get("session_id"), "error": answer.get("error_code")})


@case("CreateTopics", [5, 6])
def test_created_partitions(conversation: Conversation, version: int) -> None:
    """From v6, creation is refused above the quota; in older versions the client is only throttled."""
    names = [f"{conversation.names.prefix}quota-{version}-{number}" for number in range(2)]
    rest = {"num_partitions": 20, "replication_factor": 1, "assignments": [], "configs": []}
    with limited(conversation, "controller_mutation_rate", 1) as client:
        answer = client.call(
            "CreateTopics", version, topics=[{"name": name} | rest for name in names], timeout_ms=10_000,
            validate_only=False,
        )  # fmt: skip
        conversation.say(sorted((row["error_code"], row["error_message"]) for row in answer["topics"]))
        conversation.say({"waits": answer["throttle_time_ms"] > (0 if version >= 6 else 20_000)})


@case("DeleteTopics", [4, 5, 6])
def test_deleted_partitions(conversation: Conversation, version: int) -> None:
    names = [f"{conversation.names.prefix}quota-deleted-{version}-{number}" for number in range(2)]
    rest = {"num_partitions": 20, "replication_factor": 1, "assignments": [], "configs": []}
    conversation.client.call(
        "CreateTopics", 5, topics=[{"name": name} | rest for name in names], timeout_ms=10_000, validate_only=False
    )
    with limited(conversation, "controller_mutation_rate", 1) as client:
        named = [{"name": name, "topic_id": None} for name in names]
        fields: dict[str, Any] = {"topics": named} if version >= 6 else {"topic_names": names}
        answer = client.call("DeleteTopics", version, timeout_ms=10_000, **fields)
        conversation.say(sorted((row["error_code"], row.get("error_message")) for row in answer["responses"]))
        conversation.say({"with ids": [bool(row.get("topic_id")) for row in answer["responses"]]})
        conversation.say({"waits": answer["throttle_time_ms"] > (0 if version >= 5 else 20_000)})


@case("CreatePartitions", [1, 2, 3])
def test_added_partitions(conversation: Conversation, version: int) -> None:
    """From v3, the request is refused above the quota; in older versions the client is only throttled."""
    names = [conversation.topic(f"quota-added-{version}-{number}") for number in range(2)]
    with limited(conversation, "controller_mutation_rate", 1) as client:
        answer = client.call(
            "CreatePartitions", version, topics=[{"name": name, "count": 21, "assignments": None} for name in names],
            timeout_ms=10_000, validate_only=False,
        )  # fmt: skip
        conversation.say(sorted((row["error_code"], row["error_message"]) for row in answer["results"]))
        conversation.say({"waits": answer["throttle_time_ms"] > (0 if version >= 3 else 20_000)})


@case("CreateTopics", [6])
def test_invalid_changes_are_free(conversation: Conversation, version: int) -> None:
    """The eleven tokens are left for the first valid change, which uses up more. Only who is refused has to wait."""
    existing = conversation.topic("quota-existing")
    new, wrong = (f"{conversation.names.prefix}quota-{what}" for what in ("new", "wrong"))
    with limited(conversation, "controller_mutation_rate", 1) as client:

        def change(api: str, version: int, rows: str, **fields: Any) -> None:
            with closing(Limited(conversation, client.client_id)) as unthrottled:
                answer = unthrottled.call(api, version, timeout_ms=10_000, **fields)
            waits = answer["throttle_time_ms"] > 0
            conversation.say({"errors": [row["error_code"] for row in answer[rows]], "waits": waits})

        def create(name: str, partitions: int = 20, *, validate_only: bool = False, **configs: str) -> None:
            named = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
            topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": []}
            change("CreateTopics", version, "topics", topics=[topic | {"configs": named}], validate_only=validate_only)

        def add(name: str, count: int) -> None:
            topic = {"name": name, "count": count, "assignments": None}
            change("CreatePartitions", 3, "results", topics=[topic], validate_only=False)

        def delete(name: str) -> None:
            change("DeleteTopics", 5, "responses", topic_names=[name])

        create(existing)
        create(wrong, retention_ms="soon")
        create(wrong, 0)
        create("not/valid")
        add(wrong, 20)
        add(existing, 1)
        delete(wrong)
        create(new, validate_only=True)
        create(new)
        add(existing, 20)
        delete(existing)
        delete(wrong)


@case("Metadata", [8])
def test_time_of_requests(conversation: Conversation, version: int) -> None:
    """The bound of ten seconds is a hundredth of a millisecond. A client waits for a second at most (KIP-124)."""
    with limited(conversation, "request_percentage", 0.0001) as client:
        asked_s = time.monotonic()  # the client may see the answer late
        waits_ms = client.call("Metadata", version, topics=[])["throttle_time_ms"]
        conversation.say({"waits": waits_ms > 0, "longer than a second": waits_ms > 1_000})
        client.call("Metadata", version, topics=[])
        conversation.say({"muted": (time.monotonic() - asked_s) * 1_000 > 0.9 * waits_ms})
        conversation.say(Limited(conversation).call("Metadata", version, topics=[])["throttle_time_ms"])


@case("ApiVersions", [0])
def test_connections_of_an_address(conversation: Conversation, version: int) -> None:
    """The connections of ten seconds are accepted immediately. Others get no response, and are closed within a second
    (KIP-612)."""
    entity: dict[str, str | None] = {"ip": OTHER_ADDRESS}
    set_quota(conversation, entity, op("connection_creation_rate", 1), 1)
    try:
        clients = [conversation.connect(source=OTHER_ADDRESS) for _ in range(14)]
        for client in clients:
            client.send("ApiVersions", version)
        answered = [is_answered(client) for client in clients]
        conversation.say({"answered": answered})
        others = conversation.connect()
        others.call("ApiVersions", version)
    finally:
        set_quota(conversation, entity, op("connection_creation_rate", remove=True), 0)


def is_answered(client: RawClient) -> bool:
    try:
        client.read_frame()
    except (ConnectionClosedError, ConnectionResetError):
        return False
    return True
