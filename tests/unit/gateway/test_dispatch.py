"""The requests that are decoded in a thread, and the rights of clients whose requests another gateway forwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from kafka.protocol.api_key import ApiKey

from gateway.config.gateway_config import FORWARDING_LISTENER, Config
from gateway.dispatch import FIRST_PREPARED, Dispatcher, prepare_fetch
from gateway.handlers.table import APIS
from gateway.metering.meter import Meter
from gateway.requests.call import LARGE_FRAME_BYTES, Call, ClosesConnection
from gateway.requests.cluster import Cluster
from gateway.requests.context import GATEWAY, Client, Listener, Principal
from gateway.requests.policy import ALL_ALLOWED, Policy
from gateway.requests.reply import RelayedResponse, Response
from gateway.security.acls import Requester
from gateway.security.authorizer import Authorizer
from protocol.kafka import codec
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.messages.groups import TxnOffsetCommitRequest
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from protocol.kafka.messages.topics import MetadataRequest
from protocol.kafka.messages.transactions import EndTxnRequest, InitProducerIdRequest

PRODUCE, METADATA = 0, 3
LIMIT = Config().limits.max_control_request_bytes


@pytest.mark.parametrize(
    ("api_key", "size_bytes", "expected"),
    [
        (METADATA, LARGE_FRAME_BYTES, False),
        (METADATA, LARGE_FRAME_BYTES + 1, True),
        (METADATA, LIMIT, True),
        pytest.param(METADATA, LIMIT + 1, False, id="refused unread: it waits for no memory, and others not for it"),
        (PRODUCE, LIMIT, False),
    ],
)
def test_large_requests(api_key: int, size_bytes: int, expected: bool) -> None:
    dispatcher = Dispatcher(cast(Cluster, SimpleNamespace(config=Config())))
    assert dispatcher.is_large(bytearray(api_key.to_bytes(2, "big")).ljust(size_bytes)) is expected


class OfAlice:
    """She may describe what is hers."""

    def version(self) -> int:
        return 1

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return who == Requester("User:alice", "192.0.2.7") and name == "hers"


def test_a_forwarded_request_is_served_but_its_client_has_its_own_rights() -> None:
    def rights(policy: Policy) -> list[str]:
        return [name for name in ("hers", "others") if policy.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]

    cluster = cast(Cluster, SimpleNamespace(config=Config()))
    dispatcher = Dispatcher(cluster, authorizer=cast(Authorizer, OfAlice()))
    client, peers = Client("192.0.2.7:5"), Listener(FORWARDING_LISTENER)
    forwarded = dispatcher.context(client, peers, Principal(name="alice"))
    assert forwarded.policy is ALL_ALLOWED and rights(forwarded.client_policy) == ["hers"]
    unnamed = dispatcher.context(client, peers, GATEWAY)
    assert unnamed.policy is ALL_ALLOWED and unnamed.client_policy is ALL_ALLOWED
    direct = dispatcher.context(client, Listener("outside"), Principal(name="alice"))
    assert rights(direct.policy) == rights(direct.client_policy) == ["hers"]
    assert rights(dispatcher.context(client, Listener("outside"), Principal(name="bob")).client_policy) == []


@pytest.mark.parametrize("request_type", [InitProducerIdRequest, EndTxnRequest, TxnOffsetCommitRequest])
def test_a_connection_from_before_an_eviction_carries_no_requests_of_transactions(request_type: type[Message]) -> None:
    fleet = SimpleNamespace(incarnation="second")
    cluster = cast(Cluster, SimpleNamespace(config=Config(), fleet=fleet))
    dispatcher, client = Dispatcher(cluster), Client("192.0.2.7:5", incarnation="first")
    context = dispatcher.context(client, Listener("outside"))
    api = APIS[ApiKey(request_type.API_KEY)]
    with pytest.raises(ClosesConnection):
        dispatcher.handler(context).handle(Call(api, 3, 1, None, request_type(), context))
    metadata = Call(APIS[ApiKey.Metadata], 9, 1, None, MetadataRequest(), context)
    metadata.check_age()


async def test_the_first_fetch_of_a_version_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    await prepare_fetch()
    compiled = Mock()
    monkeypatch.setattr(codec, "compile_decoder", compiled)
    monkeypatch.setattr(codec, "compile_encoder", compiled)
    for version in range(FIRST_PREPARED, APIS[ApiKey.Fetch].max_version + 1):
        codec.prepare(FetchRequest, FetchResponse, version)
    assert not compiled.called


@pytest.mark.parametrize("version", [1, 8, 9, 13])
@pytest.mark.parametrize("throttle_time_ms", [0, 700])
def test_a_client_learns_how_long_it_is_muted_from_a_relayed_response_too(version: int, throttle_time_ms: int) -> None:
    """The leader does not know the client's quota: it is charged where the client is connected."""
    written = ProduceResponse.TopicProduceResponse(
        name="t", partition_responses=[ProduceResponse.TopicProduceResponse.PartitionProduceResponse(base_offset=5)]
    )
    leaders = b"".join(codec.encode_response(ProduceResponse, version, 9, ProduceResponse(responses=[written])))[4:]
    meter = SimpleNamespace(is_needed=True, charge=lambda call, response: (response, throttle_time_ms))
    cluster = Mock(config=Config())
    dispatcher, muted = Dispatcher(cast(Cluster, cluster), meter=cast(Meter, meter)), list[int]()
    client = Client("192.0.2.7:1")
    client.mute = muted.append
    context = dispatcher.context(client, Listener(""))
    call = Call(APIS[PRODUCE], version, 3, "c", ProduceRequest(), context, None)
    response: Response = dispatcher.complete(call, RelayedResponse(bytearray(leaders)))
    frame = b"".join(map(bytes, dispatcher.encode(call, response)))[4:]
    expected = ProduceResponse(responses=[written], throttle_time_ms=throttle_time_ms)
    assert frame == b"".join(map(bytes, codec.encode_response(ProduceResponse, version, 3, expected)))[4:]
    assert muted == [throttle_time_ms] * bool(throttle_time_ms)
