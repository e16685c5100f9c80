"""Requests and responses of every API and version, against kafka-python's own field-by-field codec."""

import struct
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.handlers.table import APIS
from gateway.requests.call import Api
from protocol.kafka import codec
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.codec import (
    MalformedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_header,
)
from protocol.kafka.fields import MAX_STRING_BYTES
from protocol.kafka.lengths import varint
from protocol.kafka.messages.cluster import ApiVersionsRequest
from protocol.kafka.messages.groups import ConsumerGroupDescribeResponse, DescribeGroupsResponse, SyncGroupRequest
from protocol.kafka.messages.security import AlterClientQuotasResponse
from protocol.kafka.messages.topics import MetadataRequest
from protocol.kafka.value_counts import ROW_BYTES, count_values, has_more_rows
from tests.support.schema_values import (
    ALL_VERSIONS,
    as_dict,
    as_object,
    decode,
    encode,
    is_flexible,
    name_of,
    values,
    witness,
)

EVERY = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(EVERY, max_examples=4)
every_version = pytest.mark.parametrize(("api", "version"), ALL_VERSIONS, ids=name_of)
PASSED_ON = [(api, version) for api, version in ALL_VERSIONS if api.route is not None or api is APIS[1]]
PRODUCE, FETCH, METADATA, API_VERSIONS = APIS[0], APIS[1], APIS[3], APIS[18]


@every_version
@EVERY
@given(data=st.data())
def test_requests_decode_as_the_witness_encodes_them_or_not_at_all(api: Api, version: int, data: st.DataObject) -> None:
    value = data.draw(values(api.request, version))
    before, behind = b"header", b"behind"
    body = encode(api.request, version, value)
    decoded = decode_request(api.request, version, memoryview(before + body + behind), len(before))
    assert as_dict(witness(api.request), version, decoded) == value
    if body:  # and one that ends early is malformed
        cut = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(MalformedRequest):
            decode_request(api.request, version, memoryview(body)[:cut], 0)


@every_version
@EVERY
@given(data=st.data())
def test_responses_encode_as_the_witness_decodes_them(api: Api, version: int, data: st.DataObject) -> None:
    value = data.draw(values(api.response, version))
    response = as_object(witness(api.response), version, value)
    if api is FETCH:
        _split_records(response, data)
    frame = b"".join(encode_response(api.response, version, 7, response))
    length, correlation_id = struct.unpack_from(">ii", frame)
    header_bytes = 5 if is_flexible(api.response, version) and api is not API_VERSIONS else 4
    assert (length, correlation_id) == (len(frame) - 4, 7)
    assert frame[8 : 4 + header_bytes] == b"\0" * (header_bytes - 4)
    assert decode(api.response, version, frame[4 + header_bytes :]) == value


@pytest.mark.parametrize(("api", "version"), PASSED_ON, ids=name_of)
@FEW
@given(data=st.data())
def test_what_is_passed_on_stays_what_it_is(api: Api, version: int, data: st.DataObject) -> None:
    """A request decoded and encoded again, and its response encoded and decoded, as another gateway does it."""
    value = data.draw(values(api.request, version))
    request = as_object(witness(api.request), version, value)
    frame = memoryview(b"".join(encode_request(api.request, version, 7, data.draw(st.none() | st.just("id")), request)))
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    header = parse_header(frame[4:], flexible=codec.is_flexible(api.request, version))
    assert (header.api_key, header.api_version, header.correlation_id) == (api.key, version, 7)
    assert header.client_id in {None, "id"}
    decoded = decode_request(api.request, version, frame[4:], header.body)
    assert as_dict(witness(api.request), version, decoded) == value
    answer = data.draw(values(api.response, version))
    response = as_object(witness(api.response), version, answer)
    if api is FETCH:
        _split_records(response, data)
    frame = memoryview(b"".join(encode_response(api.response, version, 7, response)))
    received = decode_response(api.response, version, frame[4:])
    assert as_dict(witness(api.response), version, received) == answer


@pytest.mark.parametrize("header", [b"", b"\x01", b"\xff" * 9, b"\xff\xff\x03", b"\x01\x01\x7f"])
def test_a_response_with_a_broken_header_is_malformed(header: bytes) -> None:
    with pytest.raises(codec.MalformedRequest, match="response header"):
        decode_response(FETCH.response, 12, memoryview(bytes(4) + header))


def _split_records(response: Any, data: st.DataObject) -> None:
    for topic in response.responses:
        for part in topic.partitions:
            if part.records is not None:
                cut = data.draw(st.integers(0, len(part.records)))
                chunks = (part.records[:cut], memoryview(part.records)[cut:])
                part.records = RecordChunks(chunks, len(part.records))


def _fetch_response(version: int, *records: RecordChunks | None) -> Any:
    partition = {
        "partition_index": 0, "error_code": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0,
        "aborted_transactions": None, "preferred_read_replica": -1, "diverging_epoch": None, "current_leader": None,
        "snapshot_id": None,
    }  # fmt: skip
    value = {
        "throttle_time_ms": 0, "error_code": 0, "session_id": 0, "node_endpoints": None,
        "responses": [
            {"topic": "t", "topic_id": None, "partitions": [{**partition, "records": part} for part in records]}
        ],
    }  # fmt: skip
    return as_object(witness(FETCH.response), version, value)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_large_records_are_sent_from_where_they_lie(version: int) -> None:
    large, other = bytearray(b"l" * 100_000), memoryview(b"o" * 100_000)
    records = [RecordChunks((large, other), 200_000), None, RecordChunks((), 0), RecordChunks((other,), 100_000)]
    buffers = encode_response(FETCH.response, version, 1, _fetch_response(version, *records))
    assert any(buffer is large for buffer in buffers)
    assert sum(buffer is other for buffer in buffers) == 2
    frame = b"".join(buffers)
    body = decode(FETCH.response, version, frame[9 if version >= 12 else 8 :])
    partitions = body["responses"][0]["partitions"]
    assert [part["records"] for part in partitions] == [bytes(large) + bytes(other), None, b"", bytes(other)]


def test_small_records_are_joined() -> None:
    records = RecordChunks([b"a" * 100, b"b" * 100], 200)
    assert len(encode_response(FETCH.response, 4, 1, _fetch_response(4, records))) == 1


def test_a_response_leaves_nothing_behind_for_the_next_one() -> None:
    plain = encode_response(FETCH.response, 4, 1, _fetch_response(4, None))
    encode_response(FETCH.response, 4, 2, _fetch_response(4, RecordChunks((b"x" * 50_000,), 50_000)))
    assert encode_response(FETCH.response, 4, 1, _fetch_response(4, None)) == plain


class TestHeader:
    def test_client_id_and_tagged_fields(self) -> None:
        tagged = b"\x02" + b"\x00\x03abc" + b"\x80\x01\x00"
        frame = struct.pack(">hhih", 3, 12, 42, 3) + b"app" + tagged + b"body"
        header = parse_header(memoryview(frame), flexible=True)
        assert header == (3, 12, 42, "app", len(frame) - len(b"body"))
        assert parse_header(memoryview(frame), flexible=False).body == len(frame) - len(tagged) - len(b"body")

    def test_null_and_empty_client_ids(self) -> None:
        assert parse_header(memoryview(struct.pack(">hhih", 3, 1, 1, -1)), flexible=False).client_id is None
        assert parse_header(memoryview(struct.pack(">hhih", 3, 1, 1, 0)), flexible=False).client_id == ""

    def test_controlled_shutdown_v0_has_no_client_id(self) -> None:
        assert parse_header(memoryview(struct.pack(">hhi", 7, 0, 5)), flexible=False) == (7, 0, 5, None, 8)

    @pytest.mark.parametrize(
        "rest",
        [
            pytest.param(b"", id="no client id"),
            pytest.param(b"\x00", id="half a length"),
            pytest.param(b"\x00\x05app", id="client id cut off"),
            pytest.param(b"\x00\x01\xff\x00", id="not UTF-8"),
            pytest.param(b"\xff\xff", id="no tagged fields"),
            pytest.param(b"\xff\xff\x01\x00\x05abc", id="tagged field cut off"),
            pytest.param(b"\xff\xff" + b"\xff" * 20, id="endless varint"),
            pytest.param(b"\xff\xff\xff\xff\xff\xff\x0f", id="four billion tagged fields"),
        ],
    )
    def test_malformed(self, rest: bytes) -> None:
        with pytest.raises(MalformedRequest):
            parse_header(memoryview(struct.pack(">hhi", 3, 12, 42) + rest), flexible=True)

    @pytest.mark.parametrize("length", range(8))
    def test_cut_off(self, length: int) -> None:
        with pytest.raises(MalformedRequest):
            codec.parse_fixed_header(memoryview(b"\0" * length))


def test_unknown_tagged_fields_are_skipped() -> None:
    value = {"client_software_name": "app", "client_software_version": "1"}
    body = encode(API_VERSIONS.request, 3, value)
    assert body[-1:] == b"\0"
    tagged = body[:-1] + b"\x01\x63\x03abc"
    request = decode_request(ApiVersionsRequest, 3, memoryview(tagged), 0)
    assert (request.client_software_name, request.client_software_version) == ("app", "1")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        pytest.param(0, struct.pack(">i", -1), id="array"),
        pytest.param(0, struct.pack(">i", -2), id="array of a size below null"),
        pytest.param(1, struct.pack(">ih", 1, -1), id="string in an array"),
        pytest.param(1, struct.pack(">ih", 1, -2), id="string of a size below null"),
        pytest.param(9, b"\x02\x00\x00" + b"\x01\x00\x00\x00", id="compact string"),
    ],
)
def test_null_where_the_schema_has_none_is_malformed(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="null"):
        decode_request(METADATA.request, version, memoryview(body), 0)


@pytest.mark.parametrize(
    ("api", "version", "before", "behind"),
    [
        pytest.param("FindCoordinator", 4, b"\0\2", b"\0", id="in an array"),
        pytest.param("Metadata", 12, b"\2" + bytes(16), bytes(4), id="nullable, in a struct"),
        pytest.param("Fetch", 12, bytes(25) + b"\1\1\1" + b"\1\0\x82\x80\2", b"", id="tagged"),
        pytest.param("ApiVersions", 3, b"", b"\1\0", id="not null"),
    ],
)
def test_compact_strings_are_as_long_as_others_may_be(api: str, version: int, before: bytes, behind: bytes) -> None:
    """As in Kafka, where every string is limited to what the int16 of older versions can say."""
    request = next(each.request for each in APIS.values() if each.name == api)
    limited, longer = (varint(size + 1) + b"x" * size for size in (MAX_STRING_BYTES, MAX_STRING_BYTES + 1))
    assert MAX_STRING_BYTES == 32_767 and len(limited) == MAX_STRING_BYTES + 3
    frame = memoryview(before + limited + behind)
    assert decode_request(request, version, frame, 0)
    frame = memoryview(before.replace(b"\x82\x80\2", b"\x83\x80\2") + longer + behind)
    with pytest.raises(MalformedRequest, match=r"string field [a-z_]+ had invalid length 32768$"):
        decode_request(request, version, frame, 0)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("character", ["x", "ß", "\ud800"])
def test_a_long_text_of_an_error_is_cut(version: int, character: str) -> None:
    """It may quote what the client has sent, which is as long as a string may be. No client reads a longer one."""
    text = "Unhandled client quota entity type: " + character * MAX_STRING_BYTES
    row = AlterClientQuotasResponse.EntryData(error_code=42, error_message=text, entity=[])
    answer = AlterClientQuotasResponse(entries=[row])
    frame = memoryview(b"".join(encode_response(AlterClientQuotasResponse, version, 7, answer)))[4:]
    found = decode_response(AlterClientQuotasResponse, version, frame).entries[0].error_message
    assert found is not None and MAX_STRING_BYTES - 4 <= len(found.encode()) <= MAX_STRING_BYTES
    assert found == text.replace("\ud800", "?")[: len(found)]


def test_bytes_may_be_longer_than_strings() -> None:
    long = bytes(MAX_STRING_BYTES + 1)
    row = {"member_id": "m", "assignment": long}
    value = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None, "assignments": [row]}
    body = encode(SyncGroupRequest, 5, {**value, "protocol_type": None, "protocol_name": None})
    assert decode_request(SyncGroupRequest, 5, memoryview(body), 0).assignments[0].assignment == long


def test_null_where_the_schema_allows_it() -> None:
    assert decode_request(MetadataRequest, 1, memoryview(struct.pack(">i", -1)), 0).topics is None


def test_values_of_all_levels_are_counted() -> None:
    assignment = SimpleNamespace(topic_partitions=[SimpleNamespace(partitions=[1, 2, 3])])
    member = SimpleNamespace(assignment=assignment, subscribed_topic_names=("a", "b"))
    answer = SimpleNamespace(groups=[SimpleNamespace(members=[member, member]), SimpleNamespace(members=None)])
    count = 2 + 2 + 2 * (2 + 1 + 3)
    assert count_values(ConsumerGroupDescribeResponse, answer) == count
    assert has_more_rows(ConsumerGroupDescribeResponse, answer, count - 1)
    assert not has_more_rows(ConsumerGroupDescribeResponse, answer, count)


def test_long_bytes_of_a_response_count() -> None:
    data = bytes(3 * ROW_BYTES)
    member = SimpleNamespace(member_metadata=data, member_assignment=data)
    answer = SimpleNamespace(groups=[SimpleNamespace(members=[member])])
    assert count_values(DescribeGroupsResponse, answer) == 2 + 2 * 3
    assert count_values(SyncGroupRequest, SimpleNamespace(assignments=[SimpleNamespace(assignment=data)])) == 1


def test_threads_may_compile_the_same_at_once() -> None:
    """Large requests are decoded in threads, at the same time as small ones."""
    body = struct.pack(">ih", 1, 1) + b"t"
    for version in range(1, 4):
        codec._decoders.pop((MetadataRequest, version), None)
        with ThreadPoolExecutor(6) as threads:
            done = [threads.submit(decode_request, MetadataRequest, version, memoryview(body), 0) for _ in range(6)]
            assert [[topic.name for topic in each.result().topics or ()] for each in done] == [["t"]] * 6


class Unread(list[Any]):
    """Rows that nobody may look at."""

    def __iter__(self) -> Any:
        raise AssertionError("their number is enough")


def test_rows_are_not_looked_at_if_their_number_is_enough() -> None:
    assert has_more_rows(MetadataRequest, SimpleNamespace(topics=Unread([None] * 3)), 2)
