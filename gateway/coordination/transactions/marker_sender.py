"""Sends the markers of ended transactions to the leaders of their partitions: WriteTxnMarkers (key 27), v1 and v2.

A request holds all markers for one gateway that are written in one turn of the event loop; markers for this
gateway's own partitions are written directly. The answer, or a missing answer, decides the outcome of each marker:

| the leader's answer | outcome |
| --- | --- |
| NONE | WRITTEN |
| UNKNOWN_TOPIC_OR_PARTITION, and Pulsar does not know the partition either | GONE |
| those of `ports.MARKER_OUTCOMES` | as there |
| any other, none, or an unreadable one | FAILED |

FAILED must mean that the marker is not written later, because a client that keeps its epoch may have begun its next
transaction in the partition by then. Markers that are in flight when the wait for an answer ends are stopped by the
first of these that they reach:

- The link. It is closed when an answer is missing. The leader handles nothing from a closed link, nor from a link that
  a newer link of the same gateway has replaced (`MarkerLinks`). So the next attempt is never overtaken.
- The partition's log. If it has already queued the marker, the next attempt joins this marker: it is not written twice.
- Leadership. After a move, the old leader refuses markers: it appends them only while it leads.
- The coordinator's epoch. Markers of a replaced coordinator are refused where its successor has written markers.
- The lease. A gateway that was suspended sends no markers without it: by then, a leader may have forgotten which
  coordinator was the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import NamedTuple

import structlog

from coordinator.fleet.messages import Member
from coordinator.topics import TopicPartition
from coordinator.transaction.ports import MARKER_OUTCOMES, MarkerOutcome, OnMarker, TransactionMarkers
from gateway.background import TaskGroup, report
from gateway.fleet.peers import PeerLostError, Peers
from gateway.fleet.view import FleetView
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse

ANSWER_S = 45.0
"""Longer than a leader needs to open the partition's log, and to detect that Pulsar does not answer."""
MAX_PARTITIONS = 1_000
"""The limit of one request."""
VERSION, EPOCH_BUMP_VERSION = 1, 2
"""Version 2 carries the markers' `transaction.version`. The fleet uses 2 only if every gateway can read version 2."""

WriteHere = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Writes markers to partitions that this gateway leads."""
InTurn = Callable[[str, Callable[[int], None]], None]
"""(transactional id, call): runs the call with the time of day, then sets the timers that its coordinator needs."""
log = structlog.get_logger()


class _Share(NamedTuple):
    """The markers of one transaction for one leader."""

    markers: TransactionMarkers
    partitions: Sequence[TopicPartition]
    on_outcome: OnMarker


_Key = tuple[int, TopicPartition]
"""The producer's id and the partition."""


@dataclass
class _Sending:
    """A request, until all its markers have their outcome."""

    unreported: Sequence[_Share]
    outcomes: dict[_Key, MarkerOutcome] = field(default_factory=dict)


class MarkerSender:
    def __init__(
        self,
        fleet: FleetView,
        topics: TopicCatalog,
        peers: Peers,
        write_here: WriteHere,
        in_turn: InTurn,
        serves: Callable[[str], bool],
    ) -> None:
        """`serves`: this gateway coordinates the transactional id at this moment, and no other gateway does."""
        self._fleet = fleet
        self._topics = topics
        self._peers = peers
        self._write_here = write_here
        self._in_turn = in_turn
        self._serves = serves
        self._waiting: dict[Member | None, list[_Share]] = {}
        self._tasks = TaskGroup()

    def write(self, markers: TransactionMarkers, on_outcome: OnMarker) -> None:
        """Call `on_outcome` exactly once for each partition, later (never inside this call), whatever happens."""
        by_leader: dict[Member | None, list[TopicPartition]] = {}
        for partition in sorted(markers.partitions):
            by_leader.setdefault(self._fleet.leader(*partition), []).append(partition)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        for leader, partitions in by_leader.items():
            self._waiting.setdefault(leader, []).append(_Share(markers, partitions, on_outcome))

    async def close(self) -> None:
        """Call this when the coordinators have resigned. Markers in flight get FAILED: the next coordinators retry."""
        await self._tasks.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for leader, shares in waiting.items():
            for some in _in_requests(shares):
                sending = _Sending(some)
                task = self._tasks.run_once("markers of transactions", self._send(leader, sending))
                # Not in a `finally` of the task: one that is cancelled before its first step runs nothing.
                task.add_done_callback(partial(self._report_rest, sending))

    async def _send(self, leader: Member | None, sending: _Sending) -> None:
        shares = sending.unreported
        still_ours = [share for share in shares if self._serves(share.markers.transactional_id)]
        if len(still_ours) < len(shares):
            log.info("markers are not sent, because the lease expired", transactions=len(shares) - len(still_ours))
        if not still_ours:
            return
        try:
            codes = dict(_codes(await self._ask(leader, _request(still_ours))))
        except PeerLostError as error:
            log.info("no response to WriteTxnMarkers", node_id=leader and leader.node_id, error=str(error))
            return
        sending.outcomes = {key: MARKER_OUTCOMES.get(code, MarkerOutcome.FAILED) for key, code in codes.items()}
        unknown = {key for key, code in codes.items() if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        self._report_all_but(unknown, sending)
        sending.outcomes |= dict.fromkeys(await self._gone(unknown), MarkerOutcome.GONE)

    def _report_rest(self, sending: _Sending, _sent: asyncio.Task[None]) -> None:
        for share in sending.unreported:
            self._report(share, sending.outcomes)

    def _report_all_but(self, unknown: Set[_Key], sending: _Sending) -> None:
        """Other transactions do not wait until the topics of these partitions are looked up."""
        shares, sending.unreported = sending.unreported, []
        for share in shares:
            known: list[TopicPartition] = []
            later: list[TopicPartition] = []
            for partition in share.partitions:
                is_unknown = (share.markers.producer_id, partition) in unknown
                (later if is_unknown else known).append(partition)
            self._report(share._replace(partitions=known), sending.outcomes)
            if later:
                sending.unreported = [*sending.unreported, share._replace(partitions=later)]

    async def _ask(self, leader: Member | None, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if leader is None:
            raise PeerLostError("the partition has no leader")
        if leader.node_id == self._fleet.node_id:
            return await self._ask_here(request)
        bumped = any(marker.transaction_version >= EPOCH_BUMP_VERSION for marker in request.markers)
        version = EPOCH_BUMP_VERSION if bumped else VERSION
        return await self._peers.ask(leader, version, request, WriteTxnMarkersResponse, ANSWER_S)

    async def _ask_here(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """If this times out while a marker is queued, the next attempt joins that marker, as on other gateways."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._write_here(request)
        except TimeoutError:
            raise PeerLostError(f"no result here within {ANSWER_S:.0f} s") from None

    async def _gone(self, unknown: Set[_Key]) -> list[_Key]:
        """The partitions among them that Pulsar does not know either."""
        counts = {name: await self._count_partitions(name) for name in {partition.topic for _, partition in unknown}}
        return [key for key in unknown if (count := counts[key[1].topic]) is not None and key[1].partition >= count]

    async def _count_partitions(self, name: str) -> int | None:
        """The partition count as Pulsar has it now: 0 if the topic does not exist, None if Pulsar cannot be asked."""
        try:
            topic = await self._topics.read(name)
        except PulsarError as error:
            log.warning("cannot look up topic", topic=name, error=str(error))
            return None
        return 0 if topic is None else topic.partitions

    def _report(self, share: _Share, outcomes: Mapping[_Key, MarkerOutcome]) -> None:
        def report_outcomes(now_ms: int) -> None:
            for partition in share.partitions:
                outcome = outcomes.get((share.markers.producer_id, partition), MarkerOutcome.FAILED)
                share.on_outcome(partition, outcome, now_ms)

        try:
            self._in_turn(share.markers.transactional_id, report_outcomes)
        except Exception as defect:  # a defect in the gateway: the other transactions get their outcomes nevertheless
            report("outcome of markers", defect)


def _in_requests(shares: Sequence[_Share]) -> Iterator[list[_Share]]:
    """Small shares are combined into one request; a share that is too large is split."""
    some: list[_Share] = []
    count = 0
    for share in shares:
        for start in range(0, len(share.partitions), MAX_PARTITIONS):
            part = share._replace(partitions=share.partitions[start : start + MAX_PARTITIONS])
            if some and count + len(part.partitions) > MAX_PARTITIONS:
                yield some
                some, count = [], 0
            some.append(part)
            count += len(part.partitions)
    if some:
        yield some


def _request(shares: Sequence[_Share]) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                transaction_result=markers.committed,
                topics=[
                    marker.WritableTxnMarkerTopic(name=name, partition_indexes=[number for _, number in some])
                    for name, some in groupby(partitions, lambda partition: partition.topic)
                ],
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=markers.transaction_version,
            )
            for markers, partitions, _ in shares
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> Iterator[tuple[_Key, ErrorCode]]:
    for marker in response.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                yield (marker.producer_id, TopicPartition(topic.name, row.partition_index)), ErrorCode(row.error_code)
