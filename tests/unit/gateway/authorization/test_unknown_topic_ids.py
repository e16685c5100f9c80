"""A handler gets no topic id whose topic the guard does not know: it may be known when the handler looks for it.

An answer has all topics that its member was assigned, except those that it may not describe.
"""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.api_key import ApiKey

from gateway.authorization.table import GUARDS
from gateway.config.gateway_config import Config
from gateway.handlers.table import APIS
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, RequestContext
from gateway.requests.policy import AllAllowed
from gateway.requests.reply import Reply
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedTopic
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse
from protocol.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse

MINE, HIDDEN, NEW = (uuid.UUID(int=number) for number in (1, 2, 3))
"""NEW is not known yet."""


class OnlyMine(AllAllowed):
    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name == "mine"


class Scene:
    def __init__(self) -> None:
        self.names = {MINE: "mine", HIDDEN: "hidden"}
        self.error: PulsarError | None = None
        self.handled: list[uuid.UUID | None] = []

    async def _look_up(self, topic_id: uuid.UUID) -> None:
        if self.error is not None:
            raise self.error

    def call_of(self, api_key: int, request: Any) -> Call[Any]:
        topics = SimpleNamespace(cached_name=self.names.get, get_by_id=self._look_up)
        cluster = cast(Cluster, SimpleNamespace(config=Config(), metrics=Metrics(), topics=topics))
        context = RequestContext(Client("192.0.2.7:1"), Listener(""), cluster, policy=OnlyMine())
        api = APIS[api_key]
        return Call(api, api.max_version, 0, None, request, context)

    async def delete(self, *topic_ids: uuid.UUID) -> dict[uuid.UUID | None, tuple[ErrorCode, str | None]]:
        """Error and name of each topic's row."""
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(topics=[state(name=None, topic_id=each) for each in topic_ids])

        def handle(call: Call[DeleteTopicsRequest]) -> Reply:
            self.handled += [topic.topic_id for topic in call.request.topics]
            row = DeleteTopicsResponse.DeletableTopicResult
            rows = [row(name=None, topic_id=each.topic_id) for each in call.request.topics]
            return Reply(DeleteTopicsResponse(responses=rows))

        response: Any = await GUARDS[ApiKey.DeleteTopics](self.call_of(ApiKey.DeleteTopics, request), handle).result()
        return {row.topic_id: (ErrorCode(row.error_code), row.name) for row in response.responses}

    async def produce(self, *topic_ids: uuid.UUID, acks: int = -1) -> dict[uuid.UUID | None, list[ErrorCode]]:
        """The errors of each topic's partitions."""
        part = ProduceRequest.TopicProduceData.PartitionProduceData
        request = ProduceRequest(
            acks=acks,
            topic_data=[
                ProducedTopic(topic_id=each, partition_data=[part(index=0), part(index=1)]) for each in topic_ids
            ],
        )

        def handle(call: Call[ProduceRequest]) -> Reply:
            self.handled += [topic.topic_id for topic in call.request.topic_data]
            return Reply(ProduceResponse() if acks else None)

        response: Any = await GUARDS[ApiKey.Produce](self.call_of(ApiKey.Produce, request), handle).result()
        return {
            topic.topic_id: [ErrorCode(row.error_code) for row in topic.partition_responses]
            for topic in response.responses
        }

    async def assigned(self, *topic_ids: uuid.UUID) -> tuple[ErrorCode, list[uuid.UUID | None]]:
        """The answer that a member gets when the coordinator assigns these topics to it."""
        assignment = ConsumerGroupHeartbeatResponse.Assignment
        rows = [assignment.TopicPartitions(topic_id=each, partitions=[0]) for each in topic_ids]
        answer = ConsumerGroupHeartbeatResponse(member_epoch=2, assignment=assignment(topic_partitions=rows))
        call = self.call_of(ApiKey.ConsumerGroupHeartbeat, ConsumerGroupHeartbeatRequest(group_id="mine"))
        guard = GUARDS[ApiKey.ConsumerGroupHeartbeat]
        response: Any = await guard(call, lambda call: Reply(answer)).result()
        told = response.assignment.topic_partitions if response.assignment else []
        return ErrorCode(response.error_code), [row.topic_id for row in told]


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_deletion(scene: Scene) -> None:
    found = await scene.delete(MINE, HIDDEN, NEW)
    assert scene.handled == [MINE]
    assert found == {
        MINE: (ErrorCode.NONE, None),
        HIDDEN: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        NEW: (ErrorCode.UNKNOWN_TOPIC_ID, None),
    }


async def test_a_deletion_while_pulsar_does_not_answer(scene: Scene) -> None:
    scene.error = RequestTimeoutError("away")
    assert await scene.delete(NEW) == {NEW: (ErrorCode.REQUEST_TIMED_OUT, None)}
    assert scene.handled == []


async def test_writing(scene: Scene) -> None:
    found = await scene.produce(MINE, HIDDEN, NEW)
    assert scene.handled == [MINE]
    assert found == {
        HIDDEN: [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2,
        NEW: [ErrorCode.UNKNOWN_TOPIC_ID] * 2,
    }


async def test_writing_without_an_answer(scene: Scene) -> None:
    with pytest.raises(ClosesConnection):
        await scene.produce(NEW, acks=0)
    assert scene.handled == []


async def test_an_assignment(scene: Scene) -> None:
    assert await scene.assigned(MINE, HIDDEN) == (ErrorCode.NONE, [MINE])


@pytest.mark.parametrize("error", [None, RequestTimeoutError("away")])
async def test_an_assignment_with_a_topic_that_is_not_known_yet(scene: Scene, error: PulsarError | None) -> None:
    scene.error = error
    assert await scene.assigned(MINE, NEW) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    scene.names[NEW] = "mine"
    assert await scene.assigned(MINE, NEW) == (ErrorCode.NONE, [MINE, NEW])
