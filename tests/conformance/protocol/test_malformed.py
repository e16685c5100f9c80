"""Frames that are not requests: which ones Kafka answers, and which ones close the connection."""

from __future__ import annotations

import struct

import pytest

from tests.conformance.conversation import LAST_VERSION, Conversation, case
from tests.support.raw_client import encode_request, message_class, request_header

ONCE = [0]  # these cases are about frames, not about a version of an API
METADATA = encode_request("Metadata", 4, {"topics": [], "allow_auto_topic_creation": False})
APIS = {api: message_class(api, "Request").API_KEY for api in LAST_VERSION}


def then_metadata(conversation: Conversation) -> None:
    """Record whether the connection still serves requests."""
    conversation.frame("Metadata", 4, METADATA)


def still_serves_others(conversation: Conversation) -> None:
    conversation.frame("Metadata", 4, METADATA, conversation.connect())


@case("Metadata", ONCE)
@pytest.mark.parametrize("key", [-1, 500, 32767, -32768])
def test_unknown_api_key(conversation: Conversation, version: int, key: int) -> None:
    conversation.client.send_frame(request_header(key, version, 1, "raw", flexible=False))
    conversation.outcome()
    still_serves_others(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("key", [4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 82])
def test_apis_that_are_not_for_clients(conversation: Conversation, version: int, key: int) -> None:
    conversation.client.send_frame(request_header(key, version, 1, "raw", flexible=False) + bytes(64))
    conversation.outcome()


@case("Metadata", ONCE)
@pytest.mark.parametrize("api", [api for api in LAST_VERSION if api != "ApiVersions"])
@pytest.mark.parametrize("unknown", [-1, 99, 32767])
def test_unsupported_version(conversation: Conversation, version: int, api: str, unknown: int) -> None:
    header = request_header(APIS[api], unknown, 1, "raw", flexible=False)
    conversation.client.send_frame(header + bytes(32))
    conversation.outcome()


@case("Metadata", ONCE)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 10, 11, 12, len(METADATA) - 1])
def test_truncated_request(conversation: Conversation, version: int, size: int) -> None:
    conversation.client.send_frame(METADATA[:size])
    conversation.outcome()


@case("Metadata", ONCE)
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_impossible_length(conversation: Conversation, version: int, size: int) -> None:
    """104,857,600 bytes is the limit of socket.request.max.bytes."""
    conversation.client.send_raw(struct.pack(">i", size) + bytes(64))
    conversation.outcome()
    still_serves_others(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80), b"\xff" * 64],
    ids=["http", "tls", "ones"],
)
def test_garbage(conversation: Conversation, version: int, garbage: bytes) -> None:
    conversation.client.send_raw(garbage)
    conversation.outcome()
    still_serves_others(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("size", [2, 4, 5, 20])
def test_half_a_frame_then_the_end(conversation: Conversation, version: int, size: int) -> None:
    conversation.client.send_raw((struct.pack(">i", len(METADATA)) + METADATA)[:size])
    conversation.client.finish_sending()
    conversation.outcome()
    still_serves_others(conversation)


@case("Metadata", ONCE)
def test_request_then_the_end_of_sending(conversation: Conversation, version: int) -> None:
    conversation.client.send_frame(METADATA)
    conversation.client.finish_sending()
    conversation.receive("Metadata", 4, 1)
    conversation.outcome()


@case("Metadata", ONCE)
def test_frame_in_single_bytes(conversation: Conversation, version: int) -> None:
    for byte in struct.pack(">i", len(METADATA)) + METADATA:
        conversation.client.send_raw(bytes([byte]))
    answer = conversation.client.read_frame()
    conversation.say(struct.unpack_from(">i", answer)[0])


@case("Metadata", ONCE)
@pytest.mark.parametrize("api, number", [("Metadata", 4), ("Metadata", 12), ("ApiVersions", 0), ("ApiVersions", 3)])
@pytest.mark.parametrize("extra", [1, 40])
def test_trailing_bytes(conversation: Conversation, version: int, api: str, number: int, extra: int) -> None:
    fields = {"ApiVersions": {}, "Metadata": {"topics": [], "allow_auto_topic_creation": False}}[api]
    if (api, number) == ("ApiVersions", 3):
        fields = {"client_software_name": "x", "client_software_version": "1"}
    conversation.client.send_frame(encode_request(api, number, fields) + bytes(extra))
    outcome_is_an_answer(conversation)


def outcome_is_an_answer(conversation: Conversation) -> None:
    """Record whether a frame follows, without its bytes; then whether the connection still serves requests."""
    conversation.outcome()
    last = conversation.answers[-1]
    if "frame" in last:
        last["frame"] = "any"
    then_metadata(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("count", [-1, -2, -(2**31), 2**31 - 1, 1000])
@pytest.mark.parametrize("number", [0, 1, 4])
def test_wrong_array_size(conversation: Conversation, version: int, number: int, count: int) -> None:
    """-1 is null, which Metadata accepts from v1."""
    body = struct.pack(">i", count) + (b"\x00" if number >= 4 else b"")
    conversation.client.send_frame(request_header(3, number, 1, "raw", flexible=False) + body)
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("size", [b"\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80" * 6, b"\x7f"])
def test_wrong_compact_array_size(conversation: Conversation, version: int, size: bytes) -> None:
    body = size + b"\x00\x00\x00\x00"
    conversation.client.send_frame(request_header(3, 12, 1, "raw", flexible=True) + body)
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("length", [-1, -2, 32767])
def test_wrong_string_length(conversation: Conversation, version: int, length: int) -> None:
    body = struct.pack(">ih", 1, length) + b"ab"
    conversation.client.send_frame(request_header(3, 1, 1, "raw", flexible=False) + body)
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
def test_name_that_is_not_utf8(conversation: Conversation, version: int) -> None:
    body = struct.pack(">ih", 1, 2) + b"\xff\xfe"
    conversation.client.send_frame(request_header(3, 1, 1, "raw", flexible=False) + body)
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("length", [-2, 100, 32767])
def test_wrong_client_id_length(conversation: Conversation, version: int, length: int) -> None:
    conversation.client.send_frame(struct.pack(">hhih", 3, 1, 1, length) + struct.pack(">i", 0))
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("client_id", [None, "", "ü", "x" * 10_000], ids=["null", "empty", "non-ascii", "long"])
def test_client_id(conversation: Conversation, version: int, client_id: str | None) -> None:
    payload = encode_request("Metadata", 4, {"topics": [], "allow_auto_topic_creation": False}, client_id=client_id)
    conversation.frame("Metadata", 4, payload)


@case("Metadata", ONCE)
@pytest.mark.parametrize(
    "tags", [b"\x01\x05\x02ab", b"\x01\x05\x7fab", b"\xff\xff\xff\xff\x0f", b"\x02\x05\x00\x05\x00"]
)
def test_tagged_fields_of_the_header(conversation: Conversation, version: int, tags: bytes) -> None:
    """Unknown tags are skipped; malformed tags are an error."""
    header = request_header(3, 12, 1, "raw", flexible=False) + tags
    conversation.client.send_frame(header + b"\x01\x00\x00\x00")
    outcome_is_an_answer(conversation)


@case("Metadata", ONCE)
@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_any_correlation_id_comes_back(conversation: Conversation, version: int, correlation_id: int) -> None:
    fields = {"topics": [], "allow_auto_topic_creation": False}
    conversation.client.send_frame(encode_request("Metadata", 4, fields, correlation_id=correlation_id))
    conversation.say(struct.unpack_from(">i", conversation.client.read_frame())[0])


@case("Metadata", ONCE)
def test_answers_before_a_bad_frame_still_come(conversation: Conversation, version: int) -> None:
    asked = conversation.client.send("Metadata", 1, topics=[])
    conversation.client.send_frame(METADATA[:9])
    conversation.receive("Metadata", 1, asked)
    conversation.outcome()


@case("Metadata", ONCE)
@pytest.mark.parametrize("api", list(LAST_VERSION))
def test_body_cut_to_nothing(conversation: Conversation, version: int, api: str) -> None:
    """The header alone, in the newest version; ApiVersions v0 has no body."""
    newest = LAST_VERSION[api]
    flexible = message_class(api, "Request").flexible_version_q(newest)
    conversation.client.send_frame(request_header(APIS[api], newest, 1, "raw", flexible=flexible))
    outcome_is_an_answer(conversation)
