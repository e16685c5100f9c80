"""Markers go to the leaders of their partitions, and each has exactly one outcome, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.ports import MarkerOutcome, TransactionMarkers
from gateway.coordination.transactions import marker_sender
from gateway.coordination.transactions.marker_sender import MAX_PARTITIONS, MarkerSender
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.unit.gateway.coordination.transactions.fake_fleet import FakeFleet, FakePeers, until
from tests.unit.gateway.log.fake_admin import FakeTopics

NOW_MS = 1_000
HERE, THERE, ELSEWHERE = (TopicPartition("t", number) for number in range(3))


class Scene:
    def __init__(self) -> None:
        self.peers = FakePeers()
        self.here: list[WriteTxnMarkersRequest] = []
        self.code_here = ErrorCode.NONE
        self.defect: Exception | None = None
        self.topics: dict[str, int | PulsarError] = {"t": 100}
        self.outcomes: dict[tuple[str, TopicPartition], list[MarkerOutcome]] = {}
        self.writing = False
        self.may_look_up = asyncio.Event()
        self.may_look_up.set()
        self.hangs = False
        self.serves = True
        self.sender = MarkerSender(
            FakeFleet(), cast(TopicCatalog, SimpleNamespace(read=self._read)), self.peers, self._write_here,
            self._in_turn, lambda transactional_id: self.serves,
        )  # fmt: skip

    async def _read(self, name: str) -> Topic | None:
        await self.may_look_up.wait()
        count = self.topics.get(name)
        if isinstance(count, PulsarError):
            raise count
        return None if count is None else cast(Topic, SimpleNamespace(partitions=count))

    async def _write_here(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.here.append(request)
        if self.defect is not None:
            raise self.defect
        if self.hangs:
            await asyncio.Event().wait()
        return answer(request, self.code_here)

    def _in_turn(self, transactional_id: str, call: Callable[[int], None]) -> None:
        assert not self.writing, "an outcome came inside write"
        call(NOW_MS)

    def write(
        self, name: str, partitions: Iterable[TopicPartition], *, version: int = 0, committed: bool = True
    ) -> None:
        def on_outcome(partition: TopicPartition, outcome: MarkerOutcome, now_ms: int) -> None:
            assert now_ms == NOW_MS
            self.outcomes.setdefault((name, partition), []).append(outcome)

        self.writing = True
        self.sender.write(
            TransactionMarkers(name, int(name), 5, 7, committed, frozenset(partitions), version), on_outcome
        )
        self.writing = False

    async def outcome(self, name: str, partition: TopicPartition) -> MarkerOutcome:
        """The only outcome."""
        await until(lambda: (name, partition) in self.outcomes)
        await asyncio.sleep(0.01)
        [found] = self.outcomes[name, partition]
        return found


def answer(request: object, code: ErrorCode) -> WriteTxnMarkersResponse:
    assert isinstance(request, WriteTxnMarkersRequest)
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = marker.WritableTxnMarkerTopicResult
    part = topic.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            marker(
                producer_id=each.producer_id,
                topics=[
                    topic(
                        name=named.name,
                        partitions=[
                            part(partition_index=number, error_code=code) for number in named.partition_indexes
                        ],
                    )
                    for named in each.topics
                ],
            )
            for each in request.markers
        ]
    )


async def test_each_leader_gets_one_request_for_all_that_one_moment_has() -> None:
    scene = Scene()
    scene.write("1", [HERE, THERE, ELSEWHERE])
    scene.write("2", [THERE], committed=False)
    asked = {each.member.node_id: each for each in [await scene.peers.next(), await scene.peers.next()]}
    request = asked[1].request
    assert isinstance(request, WriteTxnMarkersRequest)
    assert asked[1].version == 1
    assert [
        (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.transaction_result, each.topics)
        for each in request.markers
    ] == [
        (1, 5, 7, True, [each_topic("t", 1)]), (2, 5, 7, False, [each_topic("t", 1)])
    ]  # fmt: skip
    for each in asked.values():
        each.answer.set_result(answer(each.request, ErrorCode.NONE))
    for name, partition in (("1", HERE), ("1", THERE), ("1", ELSEWHERE), ("2", THERE)):
        assert await scene.outcome(name, partition) is MarkerOutcome.WRITTEN
    assert len(scene.here) == 1


def each_topic(name: str, *numbers: int) -> WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic:
    return WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic(name=name, partition_indexes=[*numbers])


async def test_a_gateway_that_has_slept_sends_nothing() -> None:
    """Another gateway has the transactions by then, and their producers may have begun the next ones."""
    scene = Scene()
    scene.write("1", [HERE, THERE])
    scene.serves = False
    for partition in (HERE, THERE):
        assert await scene.outcome("1", partition) is MarkerOutcome.FAILED
    assert not scene.here and scene.peers.asked.empty()


async def test_markers_of_raised_epochs_have_their_version() -> None:
    scene = Scene()
    scene.write("1", [THERE], version=2)
    asked = await scene.peers.next()
    assert asked.version == 2
    assert isinstance(asked.request, WriteTxnMarkersRequest)
    assert [each.transaction_version for each in asked.request.markers] == [2]
    asked.lose()
    assert await scene.outcome("1", THERE) is MarkerOutcome.FAILED


async def test_what_leaders_answer() -> None:
    for code, outcome in {
        ErrorCode.NONE: MarkerOutcome.WRITTEN,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: MarkerOutcome.FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR: MarkerOutcome.FAILED,
        ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.GONE,
    }.items():
        scene = Scene()
        scene.code_here = code
        scene.write("1", [HERE])
        assert await scene.outcome("1", HERE) is outcome


async def test_an_unknown_partition_counts_as_deleted_if_pulsar_confirms_it() -> None:
    for known, outcome in (
        (None, MarkerOutcome.GONE), (3, MarkerOutcome.GONE), (4, MarkerOutcome.FAILED),
        (PulsarError("away"), MarkerOutcome.FAILED),
    ):  # fmt: skip
        scene = Scene()
        scene.code_here = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        scene.topics = {} if known is None else {"t": known}
        partition = TopicPartition("t", 3)
        scene.write("1", [partition])
        assert await scene.outcome("1", partition) is outcome


async def test_a_topic_whose_deletion_may_still_fail_counts_as_existing() -> None:
    """Otherwise its partitions would keep an open transaction that no coordinator ends."""
    pulsar = FakeTopics()
    scene = Scene()
    scene.code_here = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    catalog = scene.sender._topics = TopicCatalog(pulsar.client, "t/n", 60_000)
    topic = await catalog.create("t", 2, {})
    pulsar.may_delete.clear()
    deleting = asyncio.create_task(catalog.delete(topic))
    await until(lambda: catalog.cached("t") is None)
    partition = TopicPartition("t", 0)
    scene.write("1", [partition])
    assert await scene.outcome("1", partition) is MarkerOutcome.FAILED
    pulsar.may_delete.set()
    await deleting
    scene.write("2", [partition])
    assert await scene.outcome("2", partition) is MarkerOutcome.GONE


async def test_without_an_answer_all_have_failed() -> None:
    scene = Scene()
    scene.write("1", [THERE, TopicPartition("t", 4), TopicPartition("t", -1)])
    (await scene.peers.next()).lose()
    for number in (1, 4, -1):
        assert await scene.outcome("1", TopicPartition("t", number)) is MarkerOutcome.FAILED


async def test_what_hangs_here_has_failed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "ANSWER_S", 0.02)
    scene = Scene()
    scene.hangs = True
    scene.write("1", [HERE])
    assert await scene.outcome("1", HERE) is MarkerOutcome.FAILED
    scene.hangs = False
    scene.write("2", [HERE])
    assert await scene.outcome("2", HERE) is MarkerOutcome.WRITTEN


async def test_what_an_answer_leaves_out_has_failed() -> None:
    scene = Scene()
    scene.write("1", [THERE])
    (await scene.peers.next()).answer.set_result(WriteTxnMarkersResponse())
    assert await scene.outcome("1", THERE) is MarkerOutcome.FAILED


async def test_a_defect_is_an_outcome_too() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    scene = Scene()
    scene.defect = ArithmeticError("a defect")
    scene.write("1", [HERE])
    assert await scene.outcome("1", HERE) is MarkerOutcome.FAILED
    assert len(reported) == 1


async def test_closing_ends_what_is_under_way() -> None:
    scene = Scene()
    scene.write("1", [THERE])
    await scene.peers.next()
    await scene.sender.close()
    assert await scene.outcome("1", THERE) is MarkerOutcome.FAILED


@pytest.mark.parametrize("turns", [0, 1])
async def test_closing_before_the_markers_are_sent(turns: int) -> None:
    """A task that is cancelled before its first step runs nothing, so it cannot report an outcome."""
    scene = Scene()
    scene.write("1", [HERE, THERE])
    for _ in range(turns):
        await asyncio.sleep(0)
    await scene.sender.close()
    assert await scene.outcome("1", HERE) is MarkerOutcome.FAILED
    assert await scene.outcome("1", THERE) is MarkerOutcome.FAILED


async def test_large_transactions_are_cut() -> None:
    scene = Scene()
    scene.topics = {}
    partitions = [TopicPartition("t", 1 + 3 * number) for number in range(2 * MAX_PARTITIONS + 1)]
    scene.write("1", partitions)
    scene.write("2", [THERE])
    sizes = []
    for _ in range(3):
        asked = await scene.peers.next()
        assert isinstance(asked.request, WriteTxnMarkersRequest)
        sizes.append([len(each.topics[0].partition_indexes) for each in asked.request.markers])
        asked.answer.set_result(answer(asked.request, ErrorCode.NONE))
    assert sizes == [[MAX_PARTITIONS], [MAX_PARTITIONS], [1, 1]]
    await until(lambda: len(scene.outcomes) == len(partitions) + 1)
    assert {outcome for [outcome] in scene.outcomes.values()} == {MarkerOutcome.WRITTEN}


async def test_other_markers_do_not_wait_for_the_check_of_a_deleted_topic() -> None:
    scene = Scene()
    scene.may_look_up.clear()
    gone = TopicPartition("gone", 1)
    scene.write("1", [THERE, gone])
    scene.write("2", [THERE])
    asked = await scene.peers.next()
    response = answer(asked.request, ErrorCode.NONE)
    for marker in response.markers:
        for topic in marker.topics:
            if topic.name == "gone":
                topic.partitions[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked.answer.set_result(response)
    assert await scene.outcome("1", THERE) is MarkerOutcome.WRITTEN
    assert await scene.outcome("2", THERE) is MarkerOutcome.WRITTEN
    assert ("1", gone) not in scene.outcomes
    scene.may_look_up.set()
    assert await scene.outcome("1", gone) is MarkerOutcome.GONE
