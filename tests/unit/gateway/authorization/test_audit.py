"""Each denied resource of a request is named in the audit, once, whatever else the request names."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.api_key import ApiKey
from structlog.testing import capture_logs

from gateway.authorization.table import GUARDS
from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher
from gateway.handlers.table import APIS
from gateway.network.server import KafkaServer
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, Principal
from gateway.requests.reply import Reply
from gateway.security.acls import Acl, Requester
from gateway.security.authorizer import AclAuthorizer, Authorizer
from gateway.security.records import acl_record
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.messages.groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    OffsetFetchRequest,
)
from protocol.kafka.messages.records import ProduceRequest
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest
from tests.bench.inside.scene import Scene
from tests.unit.gateway.handlers.records.fetches import fetch, part

OPEN, SECRET, DECOY = "open", "secret", "decoy"


class AllBut:
    """Every right, except those on two topics and on groups that begin with `hidden`."""

    def version(self) -> int:
        return 0

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name not in {SECRET, DECOY} and not name.startswith("hidden")

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True


def call_of(api_key: int, version: int, request: Any) -> Call[Any]:
    topics = SimpleNamespace(cached=lambda name: SimpleNamespace(name=name, partitions=1))
    cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), topics=topics))
    dispatcher = Dispatcher(cluster, authorizer=cast(Authorizer, AllBut()))
    context = dispatcher.context(Client("192.0.2.7:5"), Listener("outside"), Principal(name="mallory"))
    return Call(APIS[api_key], version, 0, None, request, context)


async def denied(call: Call[Any], response: Any = None) -> list[str]:
    """The resources in the audit."""
    with capture_logs() as lines:
        try:
            reply = GUARDS[call.api.key](call, lambda call: Reply(response or call.api.response()))
            await reply.result()
        except ClosesConnection:
            pass
    return [line["resource"] for line in lines if line["event"] == "denied"]


def produce(*names: str) -> Call[Any]:
    topic = ProduceRequest.TopicProduceData
    row = topic.PartitionProduceData(index=0, records=None)
    request = ProduceRequest(acks=1, topic_data=[topic(name=name, partition_data=[row, row]) for name in names])
    return call_of(ApiKey.Produce, 9, request)


def offset_fetch(*names: str) -> Call[Any]:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics
    topics = [topic(name=name, partition_indexes=[0, 1]) for name in names]
    groups = [group(group_id=each, topics=topics) for each in ("a", "b", "hidden-1", "hidden-2")]
    return call_of(ApiKey.OffsetFetch, 8, OffsetFetchRequest(groups=groups))


def add_partitions(*names: str) -> Call[Any]:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_topics=[topic(name=name, partitions=[0]) for name in names],
    )
    return call_of(ApiKey.AddPartitionsToTxn, 3, request)


def heartbeat(*names: str) -> Call[Any]:
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=[*names])
    return call_of(ApiKey.ConsumerGroupHeartbeat, 0, request)


@pytest.mark.parametrize(
    ("make", "also"),
    [(produce, []), (offset_fetch, ["hidden-1", "hidden-2"]), (add_partitions, []), (heartbeat, [])],
)
@pytest.mark.parametrize("names", [(SECRET, DECOY), (OPEN, DECOY, SECRET, OPEN), (SECRET, DECOY, OPEN)])
async def test_each_denied_topic_is_named_once(
    make: Callable[..., Call[Any]], also: list[str], names: tuple[str, ...]
) -> None:
    assert sorted(await denied(make(*names))) == sorted([SECRET, DECOY, *also])


async def test_topics_of_a_described_group() -> None:
    described = ConsumerGroupDescribeResponse.DescribedGroup
    member = described.Member(subscribed_topic_names=[SECRET, OPEN, DECOY])
    response = ConsumerGroupDescribeResponse(groups=[described(group_id="g", members=[member])])
    call = call_of(ApiKey.ConsumerGroupDescribe, 0, SimpleNamespace(group_ids=["g"], include_authorized_operations=0))
    assert sorted(await denied(call, response)) == [DECOY, SECRET]


@pytest.mark.parametrize("version", [3, 12])
async def test_each_denied_topic_of_a_fetch_is_named_once(version: int) -> None:
    scene, state = Scene(), SecurityState()
    for name in (OPEN, SECRET, DECOY):
        scene.add_topic(name)
    acl = Acl(ResourceType.TOPIC, PatternType.LITERAL, OPEN, "User:*", "*", AclOperation.ALL, Permission.ALLOW)
    state.apply(acl_record(acl, present=True))
    state.complete()
    dispatcher = Dispatcher(scene.cluster, None, AclAuthorizer(state, (), allow_everyone=False))
    scene.server = KafkaServer(scene.cluster.config, dispatcher, scene.cluster.metrics)
    client = scene.connect()
    with capture_logs() as lines:
        for _ in range(2):
            asked = {name: [part(0), part(1)] for name in (SECRET, OPEN, DECOY)}
            client.ask(fetch(version, asked, max_wait_ms=0))
            await scene.until_answered([client])
    assert [line["resource"] for line in lines if line["event"] == "denied"] == 2 * [SECRET, DECOY]
