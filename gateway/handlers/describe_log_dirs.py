"""DescribeLogDirs (key 35), v0-v4 (KIP-113). v2 flexible; v3 a top-level error; v4 sizes of the directory.

Logs lie in Pulsar: the namespace stands for the one directory of a broker, and nobody knows how much room it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafka.protocol.admin import DescribeLogDirsResponse

from gateway.handlers.call import Call, Response
from gateway.pulsar.errors import PulsarError
from gateway.storage.errors import error_code
from gateway.storage.topics import Topic

UNKNOWN_BYTES = -1

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Dir.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


async def handle(call: Call) -> Response:
    try:
        wanted = await _wanted(call)
        sizes = await asyncio.gather(*(call.services.topics.stored_bytes(*key) for key in wanted))
    except PulsarError as error:
        code = error_code(error)
        call.count_error(code)
        return DescribeLogDirsResponse(error_code=code, results=[])
    return DescribeLogDirsResponse(error_code=0, results=[_directory(call, zip(wanted, sizes, strict=True))])


async def _wanted(call: Call) -> list[tuple[Topic, int]]:
    """The partitions asked for that this gateway leads. Raises PulsarError."""
    leads = call.services.fleet.leads
    return [(topic, number) for topic, number in await _existing(call) if leads(topic.name, number)]


async def _existing(call: Call) -> list[tuple[Topic, int]]:
    if call.request.topics is None:
        return [(topic, number) for topic in await call.services.topics.all() for number in range(topic.partitions)]
    wanted: dict[tuple[str, int], tuple[Topic, int]] = {}
    for asked in call.request.topics:
        topic = await call.services.topics.get(asked.topic)
        for number in asked.partitions:
            if topic is not None and 0 <= number < topic.partitions:
                wanted[topic.name, number] = topic, number
    return list(wanted.values())


def _directory(call: Call, sized: Iterable[tuple[tuple[Topic, int], int]]) -> Response:
    by_topic: dict[str, list[Response]] = {}
    for (topic, number), size_bytes in sized:
        row = _Partition(partition_index=number, partition_size=size_bytes, offset_lag=0, is_future_key=False)
        by_topic.setdefault(topic.name, []).append(row)
    return _Dir(
        error_code=0, log_dir=f"persistent://{call.services.config.pulsar.full_namespace}",
        topics=[_Topic(name=name, partitions=rows) for name, rows in by_topic.items()],
        total_bytes=UNKNOWN_BYTES, usable_bytes=UNKNOWN_BYTES,
    )  # fmt: skip
