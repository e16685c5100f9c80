"""DescribeLogDirs (key 35), v0-v4 (KIP-113). v2 flexible; v3 a top-level error; v4 sizes of the directory.

The data is in Pulsar: the namespace is shown as the one directory of a broker. Its free space is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import error_code
from gateway.fan_out import fan_out, sliced
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.topics.topic import Topic
from protocol.kafka.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

UNKNOWN_BYTES = -1

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Dir.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


async def handle(call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    try:
        wanted = await _wanted(call)
        sizes = await fan_out(lambda asked: _sizes(call, *asked), wanted)
    except PulsarError as error:
        code = error_code(error)
        call.count_error(code)
        return DescribeLogDirsResponse(error_code=code, results=[])
    found = [rows async for rows in sliced(sizes) if rows]
    return DescribeLogDirsResponse(error_code=0, results=[_directory(call, found)])


async def _wanted(call: Call[DescribeLogDirsRequest]) -> list[tuple[Topic, Sequence[int]]]:
    """Topics, each with the requested partitions. Raises PulsarError."""
    if call.request.topics is None:
        return [(topic, range(topic.partitions)) for topic in (await call.cluster.topics.all()).topics]
    asked: dict[str, list[int]] = {}
    async for each in sliced(call.request.topics):
        asked.setdefault(each.topic, []).extend(each.partitions)
    found = await fan_out(call.topics.get, list(asked))
    return [(topic, asked[topic.name]) async for topic in sliced(found) if topic is not None]


async def _sizes(call: Call, topic: Topic, numbers: Sequence[int]) -> _Topic | None:
    """The topic's row, with the partitions that this gateway leads; None if it leads none."""
    leads = call.cluster.fleet.leads
    asked = {number: None async for number in sliced(numbers) if 0 <= number < topic.partitions}
    mine = [number async for number in sliced(asked) if leads(topic.name, number)]
    if not mine:
        return None
    try:
        sizes = await call.cluster.topics.stored_bytes(topic)
    except AdminError as error:
        if error.not_found:  # The topic was deleted.
            return None
        raise
    rows = [
        _Partition(partition_index=number, partition_size=sizes[number], offset_lag=0, is_future_key=False)
        async for number in sliced(mine)
        if number in sizes
    ]
    return _Topic(name=topic.name, partitions=rows)


def _directory(call: Call, topics: list[_Topic]) -> _Dir:
    return _Dir(
        error_code=0, log_dir=f"persistent://{call.cluster.config.pulsar.full_namespace}", topics=topics,
        total_bytes=UNKNOWN_BYTES, usable_bytes=UNKNOWN_BYTES,
    )  # fmt: skip
