"""What a heartbeat of KIP-848 says, as the coordinator gets it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from coordinator.group.consumer.messages import ConsumerHeartbeatRequest
from gateway.handlers.groups import consumer_group_heartbeat
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest


async def test_an_id_of_zeros_is_one_that_no_topic_has() -> None:
    got: list[ConsumerHeartbeatRequest] = []
    coordinator = SimpleNamespace(consumer_heartbeat=lambda asked, now_ms, reply: got.append(asked))

    def ask(group_id: str, heartbeat: Any, to_response: Any) -> Any:
        heartbeat(coordinator, 0, None)
        return asyncio.get_running_loop().create_future()

    service = SimpleNamespace(subscribed_topics=SimpleNamespace(knows=lambda *_: True))
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=None, partitions=[0, 2])]
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=owned)
    call = SimpleNamespace(
        request=request, version=1, client_id="c", client=SimpleNamespace(host="/h"),
        cluster=SimpleNamespace(groups=SimpleNamespace(ask=ask), group_service=service),
    )  # fmt: skip
    consumer_group_heartbeat.handle(cast(Any, call))
    assert got[0].owned == {bytes(16): {0, 2}}
