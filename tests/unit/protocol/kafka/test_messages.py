"""The message classes are those of Kafka's definitions, and kafka-python itself is unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.kafka import messages
from protocol.kafka.messages import generate
from protocol.kafka.messages.groups import ConsumerGroupDescribeResponse, JoinGroupRequest
from protocol.kafka.messages.records import FetchRequest, FetchResponse, ListOffsetsResponse
from protocol.kafka.messages.topics import CreatePartitionsRequest, MetadataRequest
from protocol.kafka.schemas.schema import schema_of

PACKAGE = Path(messages.__file__).parent


def test_the_modules_are_current() -> None:
    """If not, run: python -m protocol.kafka.messages.generate"""
    expected = generate.modules()
    assert {path: (PACKAGE / path).read_text() for path in expected} == expected
    assert {str(path.relative_to(PACKAGE)) for path in PACKAGE.glob("*/*.py")} == set(expected)


def test_fields_have_the_defaults_of_their_definitions() -> None:
    request = FetchRequest()
    assert (request.max_bytes, request.session_epoch, request.topics, request.cluster_id) == (2**31 - 1, -1, [], None)
    assert FetchRequest.FetchTopic.FetchPartition().high_watermark == 2**63 - 1
    assert ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse().offset == -1
    assert JoinGroupRequest.JoinGroupRequestProtocol().metadata == b""
    assert MetadataRequest().allow_auto_topic_creation is True
    assert CreatePartitionsRequest.CreatePartitionsTopic().assignments == []


def test_a_struct_that_is_not_sent_is_none_and_one_that_must_be_there_is_made() -> None:
    assert FetchResponse.FetchableTopicResponse.PartitionData().diverging_epoch is None
    assert ConsumerGroupDescribeResponse.DescribedGroup.Member().assignment.topic_partitions == []


def test_lists_are_not_shared() -> None:
    assert FetchRequest().topics is not FetchRequest().topics


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(AttributeError):
        FetchRequest().isolation_levels = 1  # type: ignore[attr-defined]


def test_versions_of_fields() -> None:
    schema = schema_of("FetchRequest")
    fields = {field.name: field for field in schema.fields}
    assert (schema.api_key, schema.is_response, schema.flexible_versions.start) == (1, False, 12)
    assert fields["replica_id"].versions == range(15)
    assert 14 not in fields["replica_state"].versions
    assert fields["replica_state"].is_tagged(15)


def test_unknown_messages() -> None:
    with pytest.raises(FileNotFoundError):
        schema_of("NoSuchRequest")


_LOOK = """
import kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer, sys
def state():
    return {
        (name, kind, each): repr(value)
        for name, module in list(sys.modules.items()) if name.startswith("kafka.")
        for kind, members in vars(module).items() if isinstance(members, type)
        for each, value in vars(members).items()
    }
before = state()
from gateway.handlers.table import APIS
from protocol.kafka.codec import decode_request, encode_response
for api in APIS.values():
    encode_response(api.response, api.max_version, 1, api.response())
assert state() == before, "kafka-python's classes were changed"
"""


def test_kafka_python_is_not_changed() -> None:
    """Its clients, and Spark's, may run in the same process."""
    root = PACKAGE.parents[2]
    subprocess.run([sys.executable, "-W", "ignore", "-c", _LOOK], cwd=root, check=True, timeout=60)
