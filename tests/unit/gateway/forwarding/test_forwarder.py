"""Requests at a single address: requests for one other gateway are forwarded unchanged, and nothing is lost."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import Any

import pytest

from coordinator.fleet.leadership import LeadershipState
from gateway.errors import KafkaError
from gateway.forwarding.large_messages import merged
from gateway.handlers.records import produce as produce_api
from gateway.requests import api_routes
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.reply import RelayedResponse, Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    TxnOffsetCommitRequest,
)
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse
from protocol.kafka.messages.transactions import EndTxnRequest
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.forwarding.forwarding_scene import Asked, FakeRights, Scene
from tests.unit.gateway.requests.test_routes import OTHERS

PRODUCE, VERSION = 0, 9
_Topic = ProduceRequest.TopicProduceData
_Answered = ProduceResponse.TopicProduceResponse


def produce(
    scene: Scene, partitions: list[int], *, sequence: int = -1, acks: int = -1, version: int = VERSION
) -> Asked:
    return scene.ask(PRODUCE, version, produce_request(partitions, sequence, acks))


def produce_call(scene: Scene, partitions: list[int]) -> Call:
    return scene.begin(PRODUCE, VERSION, produce_request(partitions))


def produce_request(partitions: list[int], sequence: int = -1, acks: int = -1) -> ProduceRequest:
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
    records = bytes(encode_batch([Record(0, 1, None, b"value")], base_offset=0, **(producer if sequence >= 0 else {})))
    rows = [_Topic.PartitionProduceData(index=each, records=memoryview(records)) for each in partitions]
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=[_Topic(name="t", partition_data=rows)]
    )


def written(codes: dict[int, int]) -> Any:
    rows = [
        _Answered.PartitionProduceResponse(
            index=index, error_code=code, base_offset=40 + index, log_append_time_ms=-1, log_start_offset=0,
            record_errors=[], error_message=None,
        )
        for index, code in codes.items()
    ]  # fmt: skip
    return ProduceResponse(responses=[_Answered(name="t", partition_responses=rows)], throttle_time_ms=0)


async def codes(asked: Asked) -> dict[int, int]:
    response = await asked.decoded()
    return {row.index: row.error_code for topic in response.responses for row in topic.partition_responses}


def correlation_id(frame: bytes, position: int) -> int:
    return int(struct.unpack_from(">i", frame, position)[0])


@pytest.mark.parametrize("version", range(3, 13))
async def test_a_request_for_one_leader_goes_on_as_it_came(version: int) -> None:
    scene = Scene()
    asked = produce(scene, [1], version=version)
    assert not asked.serial
    [sent] = scene.links[1].sent
    assert (sent[:4], sent[8:]) == (asked.frame[:4], asked.frame[8:])
    assert correlation_id(sent, 4) == 1_000
    answered = scene.links[1].answer(0, version, written({1: 0}))
    answer = await asked.answer()
    assert (correlation_id(answer, 0), answer[4:]) == (7, answered)


async def test_a_leader_learns_who_the_client_is_where_rights_differ() -> None:
    for rights, principal in ((None, None), (FakeRights(), "User:ANONYMOUS")):
        scene = Scene(rights)
        produce(scene, [1])
        assert scene.principals == [principal]


async def test_answers_that_come_in_another_order() -> None:
    scene = Scene()
    first, second = produce(scene, [1]), produce(scene, [1])
    scene.links[1].answer(1, VERSION, written({1: 0}))
    scene.links[1].answer(0, VERSION, written({1: 87}))
    assert await codes(first) == {1: 87}
    assert await codes(second) == {1: 0}


async def test_what_several_lead_is_split_and_merged() -> None:
    scene = Scene()
    asked = produce(scene, [1, 2])
    await asyncio.sleep(0)
    for number in (1, 2):
        scene.links[number].answer(0, VERSION, written({number: 0}))
    assert await codes(asked) == {1: 0, 2: 0}


async def test_a_lost_leader_answers_as_one_that_leads_nothing() -> None:
    scene = Scene()
    asked = produce(scene, [1])
    scene.links[1].lose()
    assert await codes(asked) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert scene.closed == []


async def test_an_answer_that_cannot_be_read_is_none() -> None:
    scene = Scene()
    asked = produce(scene, [1])
    link = scene.links[1]
    link._waiting.popitem()[1](bytearray(b"\0\0\0\1\0"))
    assert await codes(asked) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.parametrize("time_is_up", [False, True])
async def test_the_sequence_behind_a_lost_one_waits_for_it(monkeypatch: pytest.MonkeyPatch, time_is_up: bool) -> None:
    """Also when the leader is reachable again before the client gets the error, and when the refusal needs another
    turn."""
    if time_is_up:
        monkeypatch.setattr(produce_api, "CHECK_S", 0.0)
    scene = Scene()
    lost = produce(scene, [1], sequence=3)
    scene.links[1].lose()
    next_one = produce(scene, [1], sequence=4)
    assert await codes(next_one) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert scene.links[1].sent == []
    assert await codes(lost) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    produce(scene, [1], sequence=3)
    produce(scene, [1], sequence=4)
    assert len(scene.links[1].sent) == 2


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
async def test_the_sequence_behind_a_refused_one_waits_for_it(error: ErrorCode) -> None:
    scene = Scene()
    refused = produce(scene, [1], sequence=3)
    scene.links[1].answer(0, VERSION, written({1: error}))
    assert await codes(refused) == {1: error}
    assert await codes(produce(scene, [1], sequence=4)) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert len(scene.links[1].sent) == 1


async def test_lost_batches_behind_a_refused_one_count_once() -> None:
    """After four later batches the client has heard of the refusal. Of these two it has not."""
    scene = Scene()
    refused, *lost = [produce(scene, [1], sequence=number) for number in (3, 4, 5)]
    scene.links[1].answer(0, VERSION, written({1: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
    scene.links[1].lose()
    for each in (refused, *lost):
        assert await codes(each) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert await codes(produce(scene, [1], sequence=6)) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert scene.links[1].sent == []


async def test_new_leaders_get_batches_when_the_old_ones_have_answered() -> None:
    scene = Scene()
    first = produce(scene, [1])
    scene.fleet.epoch, scene.fleet.leaders = 2, {1: OTHERS[1]}
    second = produce(scene, [1])
    assert second.serial
    assert scene.links.keys() == {1}
    scene.links[1].answer(0, VERSION, written({1: 0}))
    assert await codes(first) == {1: 0}
    while second.serial:
        await asyncio.sleep(0)
    scene.links[2].answer(0, VERSION, written({1: 0}))
    assert await codes(second) == {1: 0}


async def test_a_leader_that_does_not_read_holds_the_connection_up() -> None:
    scene = Scene()
    scene.blocked = True
    asked = produce(scene, [1])
    await asyncio.sleep(0)
    assert asked.serial
    assert scene.links[1].sent == []
    scene.links[1].room.set()
    while asked.serial:
        await asyncio.sleep(0)
    scene.links[1].answer(0, VERSION, written({1: 0}))
    assert await codes(asked) == {1: 0}


async def test_no_answer_is_waited_for_without_acks() -> None:
    scene = Scene()
    asked = produce(scene, [1], acks=0)
    assert not asked.serial
    assert await asked.response() is None
    assert len(scene.links[1].sent) == 1
    scene.links[1].lose()
    assert scene.closed == ["a peer was lost"]


async def test_nothing_is_done_for_a_client_that_has_gone() -> None:
    scene = Scene()
    asked = produce(scene, [1], sequence=3)
    scene.forwarder.close()
    assert scene.links[1].lost
    assert len(scene.client.refused) == 0
    assert asked.reply.future is None or not asked.reply.future.done()


async def test_a_group_goes_to_its_coordinator() -> None:
    scene = Scene()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    scene.coordinators["g"] = 2
    asked = scene.ask(12, 4, heartbeat)
    answered = scene.links[2].answer(0, 4, HeartbeatResponse(throttle_time_ms=0, error_code=27))
    answer = await asked.answer()
    assert (correlation_id(answer, 0), answer[4:]) == (7, answered)


async def test_nothing_is_kept_of_a_member_that_waits_for_others() -> None:
    """It has been sent to the coordinator, which may answer in minutes, or be lost."""
    for is_lost in (False, True):
        scene = Scene()
        scene.coordinators["g"] = 2
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m" * 1_000)]
        call = scene.begin(11, 3, JoinGroupRequest(group_id="g", protocols=protocols))
        handling = asyncio.ensure_future(scene.forwarder.handle(call).prepared())
        await asyncio.sleep(0)
        reply = await handling
        assert not reply.needs_request and not call.frame
        assert isinstance(call.request, JoinGroupRequest) and not call.request.protocols
        assert reply.future is not None and not reply.future.done()
        if is_lost:
            scene.links[2].lose()
            answer = await asyncio.wait_for(reply.future, 10)
            assert isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NOT_COORDINATOR
        else:
            scene.links[2].answer(0, 3, JoinGroupResponse(error_code=0, protocol_name="range", members=[]))
            assert isinstance(await reply.future, RelayedResponse)


@pytest.mark.parametrize("local_first", [True, False])
async def test_shares_without_answers_have_none_together(local_first: bool) -> None:
    """For a request with acks=0, the local part is awaited, the others are not."""
    local = asyncio.get_running_loop().create_future()
    replies = [Reply.later(local), Reply(None)]
    merging = asyncio.ensure_future(merged(api_routes.PRODUCE, replies if local_first else replies[::-1]))
    await asyncio.sleep(0)
    assert not merging.done()
    local.set_result(None)
    assert await merging is None


# Transactions

END_TXN, TXN_OFFSET_COMMIT = 26, 28


def end_txn(scene: Scene) -> Asked:
    request = EndTxnRequest(transactional_id="id", producer_id=5, producer_epoch=0, committed=True)
    return scene.ask(END_TXN, 3, request)


def commit_in_transaction(scene: Scene) -> Asked:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = TxnOffsetCommitRequest(
        transactional_id="id", group_id="id", producer_id=5, producer_epoch=0,
        topics=[topic(name="t", partitions=[part])],
    )  # fmt: skip
    return scene.ask(TXN_OFFSET_COMMIT, 3, request)


async def test_what_ends_a_transaction_is_passed_on() -> None:
    scene = Scene()
    scene.coordinators["id"] = 1
    end_txn(scene)
    commit_in_transaction(scene)
    assert len(scene.links[1].sent) == 2


@pytest.mark.parametrize("state", [LeadershipState.DOUBTFUL, LeadershipState.PRESUMED_DEAD])
async def test_requests_of_a_suspended_gateway_do_not_join_the_next_transaction(
    state: LeadershipState,
) -> None:
    """A producer without a response has ended its transaction through another gateway, and continues with its epoch."""
    scene = Scene()
    scene.coordinators["id"] = 1
    scene.fleet.state = state
    ended, committed = end_txn(scene), commit_in_transaction(scene)
    assert (await ended.decoded()).error_code == ErrorCode.NOT_COORDINATOR
    [topic] = (await committed.decoded()).topics
    assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert scene.links[1].sent == []


async def test_connections_from_before_an_eviction_carry_no_requests_of_transactions() -> None:
    """The request may have waited in the socket while the gateway was suspended (KAFKA-17754)."""
    scene = Scene()
    scene.coordinators["id"] = 1
    scene.fleet.incarnation = "after the eviction"
    for ask in (end_txn, commit_in_transaction):
        with pytest.raises(ClosesConnection):
            await ask(scene).decoded()
    assert 1 not in scene.links


async def test_the_gateway_is_evicted_while_a_link_is_opened() -> None:
    scene = Scene()
    scene.coordinators["id"] = 1
    scene.blocked = True
    ended = end_txn(scene)
    scene.fleet.incarnation = "after the eviction"
    scene.links[1].room.set()
    with pytest.raises(ClosesConnection):
        await ended.decoded()
    assert scene.links[1].sent == []


async def test_the_lease_ends_while_a_link_is_opened() -> None:
    scene = Scene()
    scene.coordinators["id"] = 1
    scene.blocked = True
    ended = end_txn(scene)
    scene.fleet.state = LeadershipState.DOUBTFUL
    scene.links[1].room.set()
    assert (await ended.decoded()).error_code == ErrorCode.NOT_COORDINATOR
    assert scene.links[1].sent == []


@pytest.mark.parametrize("denied", [False, True])
async def test_what_this_gateway_leads_is_prepared_for_requests_that_wait(
    denied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = FakeRights()
    if denied:
        rights.deny("t")
    scene = Scene(rights)
    opened: list[int] = []

    async def open_log(topic: Any, index: int, *, urgent: bool) -> Any:
        opened.append(index)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(scene.fleet, "leads", lambda topic, partition: partition == 3)
    logs: Any = scene.cluster.logs
    logs.find, logs.open = lambda *_: None, open_log
    scene.forwarder.expect(produce_call(scene, [1, 3]))
    await asyncio.sleep(0)
    assert opened == ([] if denied else [3])
    await asyncio.sleep(0)


async def test_shares_that_have_begun_are_abandoned_when_the_client_leaves_before_the_last_one() -> None:
    """What this gateway itself still waits for would go on for a client that has left."""
    begun: list[asyncio.Future[Any]] = []

    def handle(_call: Call) -> Reply:
        begun.append(asyncio.get_running_loop().create_future())
        return Reply.later(begun[-1])

    scene = Scene()
    call = produce_call(scene, [0, 1])
    call = replace(call, api=replace(call.api, handle=handle))
    scene.blocked = True
    waiting = asyncio.ensure_future(scene.forwarder.handle(call).prepared())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert [future.cancelled() for future in begun] == [True]
