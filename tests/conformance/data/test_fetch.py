"""Fetch (key 1), v0 to v17: where to read, how much, how long to wait, and in which format."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.fetching import EACH, END, LONG_WAIT_MS, TOPIC_IDS_SINCE, filled, named
from tests.conformance.records import CODECS, LZ4, NONE, ZSTD, Record, batch, describe, records
from tests.conformance.requests import MAX_BYTES, fetch_fields, fetch_partition, produce_fields

SINCE_V4 = range(4, 18)
SINCE_V9 = range(9, 18)
SINCE_TOPIC_IDS = range(TOPIC_IDS_SINCE, 18)
SHORT_WAIT_MS = 50


def read(
    conversation: Conversation, version: int, offset: int, *, name: str = "fetch", limit: int = MAX_BYTES, **more: Any
) -> dict[str, Any]:
    """Fetch partition 0 of a topic and compare the response. When it is down-converted, compare the records to the end.

    Kafka cuts a down-converted response to the original size of the batches, so its end has no meaning. A wrapper may
    also have messages before the offset; clients drop them.
    """

    def request(at: int, **fields: Any) -> dict[str, Any]:
        parts = [fetch_partition(version, 0, at, limit)]
        return fetch_fields(version, [named(conversation, version, name, parts)], **fields)

    answer = conversation.call("Fetch", version, **request(offset, **more))
    if version < 4 and not answer["responses"][0]["partitions"][0]["error_code"]:
        noted = conversation.answers[-1]["Fetch"]["responses"][0]["partitions"][0]
        found = _to_the_end(conversation, version, answer, request)
        noted["records"] = [message for message in found if message[2] >= offset]
    return answer


def _to_the_end(
    conversation: Conversation, version: int, answer: dict[str, Any], request: Callable[[int], dict[str, Any]]
) -> list[Any]:
    """The messages of the response and of all fetches after it."""
    found: list[Any] = []
    while found_now := describe(answer["responses"][0]["partitions"][0]["records"]):  # None: an error
        batches = found_now["batches"]
        if not batches:
            break
        found += [(one["magic"], one["codec"], *record) for one in batches for record in one["records"]]
        answer = conversation.client.call("Fetch", version, **request(batches[-1]["records"][-1][0] + 1))
    return found


@case("Fetch")
@pytest.mark.parametrize("offset", [0, 2, EACH, EACH + 1, END - 1])
def test_from_an_offset(conversation: Conversation, version: int, offset: int) -> None:
    """The whole batch with the offset, and all later ones."""
    filled(conversation)
    read(conversation, version, offset)


@case("Fetch")
def test_at_the_end(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, END)


@case("Fetch")
@pytest.mark.parametrize("offset", [END + 1, 2**62, 2**63 - 1, -1, -2, -3, -(2**63)])
def test_out_of_range(conversation: Conversation, version: int, offset: int) -> None:
    filled(conversation)
    read(conversation, version, offset)


@case("Fetch")
def test_out_of_range_does_not_wait(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, END + 1, max_wait_ms=LONG_WAIT_MS, min_bytes=MAX_BYTES)


@case("Fetch")
def test_empty_partition(conversation: Conversation, version: int) -> None:
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 1, 0)])]
    conversation.call("Fetch", version, **fetch_fields(version, topics))


@case("Fetch")
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(conversation: Conversation, version: int, codec: str) -> None:
    """A zstd batch cannot be down-converted: UNSUPPORTED_COMPRESSION_TYPE."""
    name = f"fetch-{codec}"
    filled(conversation, CODECS[codec], name)
    read(conversation, version, 0, name=name)
    read(conversation, version, 7, name=name)


@case("Fetch")
@pytest.mark.parametrize("offset", [0, 3])
def test_zstd_behind_another_codec(conversation: Conversation, version: int, offset: int) -> None:
    """What is before the zstd batch can be down-converted."""
    fresh = not conversation.has_topic("fetch-mixed")
    topic = conversation.topic("fetch-mixed")
    if fresh:
        for codec in ("gzip", "zstd", "gzip"):
            fields = produce_fields(9, {topic: {0: batch(records(3), CODECS[codec])}})
            conversation.client.call("Produce", 9, **fields)
    read(conversation, version, offset, name="fetch-mixed")


@case("Fetch")
@pytest.mark.parametrize("offset", [0, 3])
def test_topic_that_compresses_with_zstd(conversation: Conversation, version: int, offset: int) -> None:
    """It needs v10, also where there is nothing to read."""
    fresh = not conversation.has_topic("fetch-by-zstd")
    topic = conversation.topic("fetch-by-zstd", configs={"compression.type": "zstd"})
    if fresh:
        conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: batch(records(3))}}))
    read(conversation, version, offset, name="fetch-by-zstd")


@case("Fetch", range(5))
def test_topic_without_down_conversion(conversation: Conversation, version: int) -> None:
    fresh = not conversation.has_topic("fetch-unconverted")
    topic = conversation.topic("fetch-unconverted", configs={"message.downconversion.enable": "false"})
    if fresh:
        conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: batch(records(3))}}))
    read(conversation, version, 0, name="fetch-unconverted")


@case("Fetch", range(4))
def test_down_conversion_from_mid_batch_limited(conversation: Conversation, version: int) -> None:
    filled(conversation, LZ4, "fetch-lz4")
    for limit in (400, 1000):
        read(conversation, version, 7, name="fetch-lz4", limit=limit)


@case("Fetch", range(5))
def test_down_conversion_of_all_that_records_may_hold(conversation: Conversation, version: int) -> None:
    """Headers are lost, keys and values may be null or empty, missing timestamps stay missing."""
    fresh = not conversation.has_topic("fetch-kinds")
    topic = conversation.topic("fetch-kinds")
    if fresh:
        headed, other = Record(b"v", None, 5, [("h", b"x")]), Record(b"", b"", 7)
        content = [headed, Record(None, b"k", 6), other, Record(b"z", None, -1)]
        for codec in (NONE, LZ4):
            conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: batch(content, codec)}}))
    read(conversation, version, 0, name="fetch-kinds")


@case("Fetch")
@pytest.mark.parametrize("limit", [0, 1, 60, 500, 900, MAX_BYTES])
def test_partition_max_bytes(conversation: Conversation, version: int, limit: int) -> None:
    """From v3, the first batch is complete, however small the limit; in older versions it is cut."""
    filled(conversation)
    read(conversation, version, 2, limit=limit)


@case("Fetch", range(3, 18))
@pytest.mark.parametrize("limit", [0, 1, 500, 900])
def test_response_max_bytes(conversation: Conversation, version: int, limit: int) -> None:
    filled(conversation)
    read(conversation, version, 0, max_bytes=limit)


@case("Fetch", [0, 2, 3, 4, 12, 17])
@pytest.mark.parametrize("limit", [-1, -(2**31)])
def test_negative_limits(conversation: Conversation, version: int, limit: int) -> None:
    filled(conversation)
    read(conversation, version, 0, limit=limit)


@case("Fetch", [3, 11, 17])
def test_response_limit_over_several_partitions(conversation: Conversation, version: int) -> None:
    """Only the first partition with data may exceed the limit."""
    filled(conversation)
    filled(conversation, ZSTD if version > 9 else LZ4, "fetch-second" if version > 9 else "fetch-third")
    second = "fetch-second" if version > 9 else "fetch-third"
    topics = [named(conversation, version, name, [fetch_partition(version, 0, 0)]) for name in ("fetch", second)]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_bytes=1))


@case("Fetch")
@pytest.mark.parametrize("offset", [0, END])
def test_topics_in_turns(conversation: Conversation, version: int, offset: int) -> None:
    """The answer has the order of the request, also when the same fetch comes again."""
    filled(conversation)
    filled(conversation, LZ4, "fetch-third")
    asked = [("fetch", 0), ("fetch-third", 0), ("fetch", 1), ("fetch-third", 1)]
    at = END if version < 4 else offset  # converted records are compared by others
    topics = [named(conversation, version, name, [fetch_partition(version, index, at)]) for name, index in asked]
    for _ in range(3):
        answer = conversation.call("Fetch", version, **fetch_fields(version, topics))
        conversation.say([[each["partition_index"] for each in topic["partitions"]] for topic in answer["responses"]])


@case("Fetch")
def test_waits_in_vain(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, END, max_wait_ms=SHORT_WAIT_MS, min_bytes=1)


@case("Fetch", [0, 4, 11, 12, 17])
def test_returns_the_little_there_is_after_the_wait(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, END - 1, max_wait_ms=SHORT_WAIT_MS, min_bytes=MAX_BYTES)


@case("Fetch")
def test_enough_bytes_end_the_wait(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=1)


@case("Fetch", [4, 12, 17])
def test_the_wait_is_for_no_more_than_the_answer_may_have(conversation: Conversation, version: int) -> None:
    filled(conversation)
    read(conversation, version, 0, max_bytes=500, max_wait_ms=LONG_WAIT_MS, min_bytes=MAX_BYTES)


@case("Fetch", [9, 12, 17])
def test_an_error_of_one_partition_ends_the_wait_for_another(conversation: Conversation, version: int) -> None:
    filled(conversation)
    parts = [fetch_partition(version, 0, END), fetch_partition(version, 1, 0, current_leader_epoch=99)]
    fields = fetch_fields(
        version, [named(conversation, version, "fetch", parts)], max_wait_ms=LONG_WAIT_MS, min_bytes=1
    )
    conversation.call("Fetch", version, **fields)


@case("Fetch")
def test_woken_by_a_produce(conversation: Conversation, version: int) -> None:
    """The fetch waits for a minute at most; a record from another connection completes it."""
    topic = conversation.topic("fetch-wake")
    conversation.start_here(topic)
    conversation.topic_id("fetch-wake")
    parts = [fetch_partition(version, 0, conversation.names.start_offset)]
    topics = [named(conversation, version, "fetch-wake", parts)]
    asked = conversation.client.send(
        "Fetch", version, **fetch_fields(version, topics, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
    )
    conversation.connect().call("Produce", 9, **produce_fields(9, {topic: {0: batch(records(2))}}))
    answer = conversation.receive("Fetch", version, asked)
    conversation.answers.pop()  # the high watermark may lag behind the records
    woken = answer["responses"][0]["partitions"][0]
    described = describe(woken["records"])["batches"]
    conversation.say((woken["error_code"], [record[3:] for one in described for record in one["records"]]))


@case("Fetch", [0, 4, 12, 17])
def test_waiting_fetch_holds_back_the_next_answer(conversation: Conversation, version: int) -> None:
    """Responses are sent in the order of the requests, also when the first one waits."""
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 0, END)])]
    waiting = fetch_fields(version, topics, max_wait_ms=SHORT_WAIT_MS, min_bytes=1)
    first = conversation.client.send("Fetch", version, **waiting)
    second = conversation.client.send("Metadata", 1, topics=[])
    conversation.receive("Fetch", version, first)
    conversation.receive("Metadata", 1, second)


@case("Fetch")
@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_unknown_partition(conversation: Conversation, version: int, index: int) -> None:
    filled(conversation)
    """The partition that exists still waits for data."""
    parts = [fetch_partition(version, 0, END), fetch_partition(version, index, 0)]
    topics = [named(conversation, version, "fetch", parts)]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=SHORT_WAIT_MS, min_bytes=1))


@case("Fetch", range(TOPIC_IDS_SINCE))
@pytest.mark.parametrize("name", ["no-such-topic", "", ".", "a b"])
def test_unknown_topic(conversation: Conversation, version: int, name: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    topics = [{"topic": full, "partitions": [fetch_partition(version, 0, 0)]}]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=LONG_WAIT_MS, min_bytes=1))


@case("Fetch", SINCE_TOPIC_IDS)
@pytest.mark.parametrize("value", [0, 1, 77])
def test_unknown_topic_id(conversation: Conversation, version: int, value: int) -> None:
    filled(conversation)
    unknown = {"topic_id": uuid.UUID(int=value), "partitions": [fetch_partition(version, 0, 0)]}
    known = named(conversation, version, "fetch", [fetch_partition(version, 0, END)])
    for topics, wait_ms in (([unknown], LONG_WAIT_MS), ([unknown, known], SHORT_WAIT_MS)):
        conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=wait_ms, min_bytes=1))


@case("Fetch")
def test_no_topics(conversation: Conversation, version: int) -> None:
    conversation.call("Fetch", version, **fetch_fields(version, [], max_wait_ms=SHORT_WAIT_MS))


@case("Fetch", [4, 7, 12, 13, 17])
def test_topic_named_twice(conversation: Conversation, version: int) -> None:
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, index, 0)]) for index in (0, 1)]
    conversation.call("Fetch", version, **fetch_fields(version, topics))


@case("Fetch", [0, 3, 4, 7, 12, 13, 17])
def test_partition_named_twice(conversation: Conversation, version: int) -> None:
    filled(conversation)
    parts = [fetch_partition(version, 0, offset) for offset in (0, END)]
    conversation.call("Fetch", version, **fetch_fields(version, [named(conversation, version, "fetch", parts)]))


@case("Fetch", SINCE_V4)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_isolation_level(conversation: Conversation, version: int, level: int) -> None:
    filled(conversation)
    read(conversation, version, 0, isolation_level=level)


@case("Fetch", SINCE_V9)
@pytest.mark.parametrize("epoch", [-1, 0, 1, 1000, -2])
def test_current_leader_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    """A higher epoch than the leader's is UNKNOWN_LEADER_EPOCH; -1 requests no check."""
    filled(conversation)
    parts = [fetch_partition(version, 0, 0, current_leader_epoch=epoch)]
    topics = [named(conversation, version, "fetch", parts)]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=LONG_WAIT_MS, min_bytes=1))


@case("Fetch", range(12, 18))
@pytest.mark.parametrize("epoch", [-1, 0, 5])
def test_last_fetched_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 0, EACH, last_fetched_epoch=epoch)])]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=SHORT_WAIT_MS, min_bytes=1))


@case("Fetch", range(12, 18))
@pytest.mark.parametrize("offset", [-1, END, END + 1])
@pytest.mark.parametrize("epoch", [0, 1])
def test_records_that_the_leader_does_not_have(
    conversation: Conversation, version: int, offset: int, epoch: int
) -> None:
    """A reader that names the epoch of its last records learns where they diverge (KIP-595)."""
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 0, offset, last_fetched_epoch=epoch)])]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=SHORT_WAIT_MS, min_bytes=1))


@case("Fetch", [12])
def test_last_fetched_epoch_of_an_unknown_topic(conversation: Conversation, version: int) -> None:
    unknown = {"topic": conversation.names.prefix + "nowhere"}
    parts = [fetch_partition(version, 0, 0, last_fetched_epoch=1)]
    topics = [{**unknown, "partitions": parts}]
    conversation.call("Fetch", version, **fetch_fields(version, topics, max_wait_ms=LONG_WAIT_MS, min_bytes=1))


@case("Fetch", [4, 12, 17])
def test_each_partition_has_its_own_error(conversation: Conversation, version: int) -> None:
    """Although other partitions have records, and the client does not want to wait."""
    filled(conversation)
    filled(conversation, name="fetch-others")
    offsets = (("fetch", 0, 0), ("fetch", 1, 1), ("fetch-others", 0, -1), ("fetch-others", 1, 7))
    topics = [
        named(conversation, version, topic, [fetch_partition(version, index, offset)])
        for topic, index, offset in offsets
    ]
    unknown = {"partitions": [fetch_partition(version, 0, 0)]}
    is_named = version < TOPIC_IDS_SINCE
    topics.append(unknown | ({"topic": "nowhere"} if is_named else {"topic_id": uuid.UUID(int=77)}))
    answer = conversation.client.call("Fetch", version, **fetch_fields(version, topics))
    found = [
        (part["partition_index"], part["error_code"]) for topic in answer["responses"] for part in topic["partitions"]
    ]
    conversation.say(sorted(found))


@case("Fetch", [5, 11, 17])
def test_rack_and_log_start_of_a_consumer(conversation: Conversation, version: int) -> None:
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 0, END - 1, log_start_offset=3)])]
    fields = fetch_fields(version, topics)
    if version >= 11:
        fields["rack_id"] = "somewhere"
    conversation.call("Fetch", version, **fields)


@case("Fetch", [4, 11, 14])
def test_as_a_debugging_consumer(conversation: Conversation, version: int) -> None:
    filled(conversation)
    topics = [named(conversation, version, "fetch", [fetch_partition(version, 0, 0)])]
    conversation.call("Fetch", version, **(fetch_fields(version, topics) | {"replica_id": -2}))


@case("Fetch", [0, 4, 11, 14, 17])
@pytest.mark.parametrize("replica_id", [0, 5])
def test_as_a_broker_without_a_replica(conversation: Conversation, version: int, replica_id: int) -> None:
    filled(conversation)
    parts = [fetch_partition(version, index, 0) for index in (0, 7)]
    who = {"replica_id": replica_id} if version < 15 else {"replica_state": {"replica_id": replica_id}}
    conversation.call("Fetch", version, **(fetch_fields(version, [named(conversation, version, "fetch", parts)]) | who))
