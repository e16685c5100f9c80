"""Loads on group coordinators: commits and heartbeats in flight, and many idle groups."""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from tests.bench.loads.frames import CORRELATION_AT, LENGTH_BYTES, LoadError
from tests.bench.loads.kafka import CONNECT_TIMEOUT_S, REQUESTS_PER_CONNECTION, FrameConnection, connect, watched
from tests.bench.loads.meter import Meter, Result, latencies
from tests.bench.process import cpu_seconds, resident_mb
from tests.support.names import unique_topic
from tests.support.raw_client import connected, decode_response, encode_request

COMMIT_VERSION = 7
FETCH_OFFSETS_VERSION = 5
HEARTBEAT_VERSION = 0
JOIN_VERSION = 2
"""The last version that does not need a second request for the member id."""
SYNC_VERSION = 1
REBALANCE_IN_PROGRESS = 27
SESSION_TIMEOUT_MS = 30_000
HEARTBEAT_S = 3.0
"""Kafka's default interval of heartbeats (heartbeat.interval.ms)."""
STABLE_TIMEOUT_S = 90.0
CONNECTING_AT_ONCE = 200
COMMITS_AT_ONCE = 20


def _framed(api: str, version: int, **fields: Any) -> bytes:
    payload = encode_request(api, version, fields, correlation_id=0, client_id="bench")
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def _commit_fields(group: str, topic: str, partitions: int) -> dict[str, Any]:
    rows = [
        {"partition_index": index, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        for index in range(partitions)
    ]
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": topic, "partitions": rows}],
    }  # fmt: skip


class _Pipeline:
    """One connection that repeats a request, with a fixed number in flight. The response begins or ends with its error.
    """

    def __init__(self, frame: bytes, error_at: int, meter: Meter, seconds: list[float]) -> None:
        self._head, self._rest = frame[:CORRELATION_AT], frame[CORRELATION_AT + 4 :]
        self._error_at = error_at
        self._meter = meter
        self._seconds = seconds
        self._sent: deque[float] = deque()
        self._number = 0
        self._outgoing: list[bytes] = []
        self.stopping = False
        self.connection: FrameConnection | None = None

    def start(self, in_flight: int) -> None:
        for _ in range(in_flight):
            self._next()
        self.on_read()

    def on_frame(self, response: memoryview) -> None:
        error = int.from_bytes(response[self._error_at :][:2], "big", signed=True)
        if error:
            raise LoadError(f"refused: error {error}")
        self._seconds.append(time.perf_counter() - self._sent.popleft())
        self._meter.count()
        if not self.stopping:
            self._next()

    def on_read(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self.connection is not None:
            self.connection.write(outgoing)

    def _next(self) -> None:
        self._outgoing += (self._head, self._number.to_bytes(4, "big"), self._rest)
        self._number += 1
        self._sent.append(time.perf_counter())


async def _run_pipelines(
    bootstrap: str, requests: list[tuple[bytes, int]], seconds: float, warm_up_s: float
) -> Result:
    meter, taken_s = Meter(1), list[float]()
    pipelines = [_Pipeline(frame, error_at, meter, taken_s) for frame, error_at in requests]
    for pipeline in pipelines:
        pipeline.connection = await connect(bootstrap, pipeline.on_frame, pipeline.on_read)
    for pipeline in pipelines:
        pipeline.start(REQUESTS_PER_CONNECTION)
    connections = [pipeline.connection for pipeline in pipelines if pipeline.connection is not None]
    await watched(connections, meter.run(warm_up_s, seconds))
    for pipeline in pipelines:
        pipeline.stopping = True
    for connection in connections:
        connection.close()
    return {**meter.result(), "request_ms": latencies(taken_s)}


async def commits(bootstrap: str, topic: str, in_flight: int, seconds: float, warm_up_s: float) -> Result:
    """Commits of one offset each, by one group for each connection."""
    requests = []
    for number in range(in_flight // REQUESTS_PER_CONNECTION):
        frame = _framed("OffsetCommit", COMMIT_VERSION, **_commit_fields(f"{topic}-{number}", topic, 1))
        # correlation id, throttle time, array, topic name, array, partition index
        requests.append((frame, LENGTH_BYTES + 4 + 4 + 4 + 2 + len(topic) + 4 + 4))
    await _find_coordinators(bootstrap, [f"{topic}-{number}" for number in range(len(requests))])
    return await _run_pipelines(bootstrap, requests, seconds, warm_up_s)


async def heartbeats(bootstrap: str, topic: str, in_flight: int, seconds: float, warm_up_s: float) -> Result:
    """Heartbeats of the only member of a group on each connection."""
    groups = [unique_topic("beating") for _ in range(in_flight // REQUESTS_PER_CONNECTION)]
    await _find_coordinators(bootstrap, groups)
    members = [_Member(bootstrap, group, topic) for group in groups]
    await asyncio.gather(*(member.become_stable() for member in members))
    requests = [
        # The response has nothing but the error.
        (_framed("Heartbeat", HEARTBEAT_VERSION, **member.identity), LENGTH_BYTES + 4)
        for member in members
    ]
    result = await _run_pipelines(bootstrap, requests, seconds, warm_up_s)
    await asyncio.gather(*(member.close() for member in members))
    return result


async def _find_coordinators(bootstrap: str, groups: list[str]) -> None:
    """Wait until every group has a coordinator: Kafka creates `__consumer_offsets` at the first request."""

    def find() -> None:
        deadline = time.monotonic() + STABLE_TIMEOUT_S
        with connected(bootstrap) as client:
            for group in groups:
                while client.call("OffsetFetch", FETCH_OFFSETS_VERSION, group_id=group, topics=[])["error_code"]:
                    client.call("FindCoordinator", 0, key=group)
                    if time.monotonic() > deadline:
                        raise LoadError(f"no coordinator for {group}")
                    time.sleep(0.1)

    await asyncio.to_thread(find)


class _Member:
    """A consumer of a classic group, reduced to its requests to the coordinator."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.identity: dict[str, Any] = {"group_id": group, "generation_id": -1, "member_id": ""}

    async def connect(self) -> None:
        host, _, port = self._bootstrap.rpartition(":")
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            self._streams = await asyncio.open_connection(host, int(port), limit=4096)

    async def become_stable(self) -> None:
        """Join and synchronise until the generation is stable."""
        if self._streams is None:
            await self.connect()
        while True:
            joined = await self._call(
                "JoinGroup", JOIN_VERSION, group_id=self.identity["group_id"], member_id=self.identity["member_id"],
                session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=60_000, protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b""}],
            )  # fmt: skip
            if joined["error_code"]:
                raise LoadError(f"join refused: error {joined['error_code']}")
            self.identity |= {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
            shares = [{"member_id": member["member_id"], "assignment": b""} for member in joined["members"]]
            synced = await self._call("SyncGroup", SYNC_VERSION, **self.identity, assignments=shares)
            if synced["error_code"] == 0:
                return
            if synced["error_code"] != REBALANCE_IN_PROGRESS:
                raise LoadError(f"sync refused: error {synced['error_code']}")

    async def live(self, stop: asyncio.Event, taken_s: list[float]) -> None:
        """Send heartbeats until `stop`; join again when a rebalance begins."""
        while not stop.is_set():
            began = time.perf_counter()
            error = (await self._call("Heartbeat", HEARTBEAT_VERSION, **self.identity))["error_code"]
            taken_s.append(time.perf_counter() - began)
            if error == REBALANCE_IN_PROGRESS:
                await self.become_stable()
            elif error:
                raise LoadError(f"heartbeat refused: error {error}")
            try:
                await asyncio.wait_for(stop.wait(), HEARTBEAT_S)
            except TimeoutError:
                continue

    async def _call(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(_framed(api, version, **fields))
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        return decode_response(api, version, await reader.readexactly(size))[1]

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()


async def many_groups(
    bootstrap: str, topic: str, server_pid: int, groups: int, members: int, seconds: float
) -> Result:
    """Stable groups that send heartbeats, and what they cost the server."""
    names = [unique_topic("group") for _ in range(groups)]
    await _find_coordinators(bootstrap, names[:20])
    everyone = [_Member(bootstrap, name, topic) for name in names for _ in range(members)]
    began = time.perf_counter()
    await _few_at_once(CONNECTING_AT_ONCE, [member.connect() for member in everyone])
    async with asyncio.timeout(STABLE_TIMEOUT_S):
        await asyncio.gather(*(member.become_stable() for member in everyone))
    stop, taken_s = asyncio.Event(), list[float]()
    lives = [asyncio.create_task(member.live(stop, taken_s)) for member in everyone]
    await asyncio.sleep(2 * HEARTBEAT_S)  # the first heartbeats may start another rebalance
    stable_s = time.perf_counter() - began - 2 * HEARTBEAT_S
    taken_s.clear()
    cpu_before = cpu_seconds(server_pid)
    await asyncio.sleep(seconds)
    busy = (cpu_seconds(server_pid) - cpu_before) / seconds
    result = {
        "batches_per_s": len(taken_s) / seconds, "request_ms": latencies(taken_s), "server_busy": busy,
        "resident_mb": resident_mb(server_pid), "stable_s": stable_s,
    }  # fmt: skip
    stop.set()
    await asyncio.gather(*lives)
    await asyncio.gather(*(member.close() for member in everyone))
    return result


async def store_offsets(bootstrap: str, topic: str, groups: int, partitions: int) -> Result:
    """Each group commits one offset for every partition."""
    names = [f"stored-{number}" for number in range(groups)]
    await _find_coordinators(bootstrap, names[:20])
    began = time.perf_counter()

    async def commit(name: str) -> None:
        member = _Member(bootstrap, name, topic)
        await member.connect()
        answer = await member._call("OffsetCommit", COMMIT_VERSION, **_commit_fields(name, topic, partitions))
        errors = {row["error_code"] for each in answer["topics"] for row in each["partitions"]}
        if errors != {0}:
            raise LoadError(f"commit refused: errors {errors}")
        await member.close()

    await _few_at_once(COMMITS_AT_ONCE, [commit(name) for name in names])
    return {"offsets_per_s": groups * partitions / (time.perf_counter() - began)}


async def _few_at_once(count: int, jobs: list[Coroutine[Any, Any, None]]) -> None:
    limit = asyncio.Semaphore(count)

    async def run(job: Coroutine[Any, Any, None]) -> None:
        async with limit:
            await job

    await asyncio.gather(*map(run, jobs))
