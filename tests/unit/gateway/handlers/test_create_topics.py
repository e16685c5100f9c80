"""How much one request may create."""

from __future__ import annotations

from typing import Any

from gateway.handlers.topics.create_topics import MAX_TOPICS
from protocol.kafka.codec import decode_response, encode_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.bench.inside.scene import Scene


async def codes(topics: int) -> list[int]:
    """Of topics that would be created; the response has the configurations of each."""
    scene = Scene()
    client = scene.connect()
    topic = CreateTopicsRequest.CreatableTopic
    wanted = [topic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(topics)]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=1_000, validate_only=True)
    client.ask(b"".join(encode_request(CreateTopicsRequest, 5, 1, "client", request)))
    await scene.until_answered([client])
    response: Any = decode_response(CreateTopicsResponse, 5, memoryview(b"".join(map(bytes, client.received)))[4:])
    return [row.error_code for row in response.topics]


async def test_a_request_creates_no_more_than_in_kafka() -> None:
    assert await codes(MAX_TOPICS + 1) == [ErrorCode.POLICY_VIOLATION] * (MAX_TOPICS + 1)
    assert await codes(3) == [ErrorCode.NONE] * 3
