"""Requests about very many offsets are handled part by part."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import fan_out
from gateway.requests import group_topics
from gateway.requests.group_topics import in_parts
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import OffsetDeleteRequest, OffsetDeleteResponse

Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
Row = OffsetDeleteResponse.OffsetDeleteResponseTopic
PART_ROWS = 4


def request(*counts: int) -> OffsetDeleteRequest:
    partitions = [[Topic.OffsetDeleteRequestPartition(partition_index=each) for each in range(n)] for n in counts]
    return OffsetDeleteRequest(
        group_id="g", topics=[Topic(name=f"t{number}", partitions=rows) for number, rows in enumerate(partitions)]
    )


class Handler:
    """Answers with the partition numbers, and with an error from the given part on."""

    def __init__(self, fails_at: int = -1) -> None:
        self.parts: list[OffsetDeleteRequest] = []
        self._fails_at = fails_at

    def handle(self, call: Any) -> Reply:
        self.parts.append(call.request)
        if len(self.parts) == self._fails_at:
            return Reply(OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR))
        row = Row.OffsetDeleteResponsePartition
        return Reply(
            OffsetDeleteResponse(
                topics=[
                    Row(name=topic.name, partitions=[row(partition_index=r.partition_index) for r in topic.partitions])
                    for topic in call.request.topics
                ]
            )
        )

    def asked(self, asked: OffsetDeleteRequest) -> Reply:
        call: Any = SimpleNamespace(request=asked)
        call.asking = lambda part: SimpleNamespace(request=part)
        return in_parts(self.handle)(call)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "PART_ROWS", PART_ROWS)
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)


@pytest.mark.parametrize("counts", [(), (0,), (4,), (1, 3), (0, 2, 1)])
async def test_others_are_handled_as_they_are(counts: tuple[int, ...]) -> None:
    handler, asked = Handler(), request(*counts)
    assert handler.asked(asked).preparation is None
    assert handler.parts == [asked] and handler.parts[0] is asked


@given(st.lists(st.integers(0, 11), max_size=6))
async def test_all_rows_are_answered(counts: list[int]) -> None:
    handler, asked = Handler(), request(*counts)
    response = await handler.asked(asked).result()
    whole = await Reply(None).then(lambda _: Handler().handle(SimpleNamespace(request=asked)).response).result()
    assert response == whole
    assert all(sum(max(1, len(topic.partitions)) for topic in part.topics) <= PART_ROWS for part in handler.parts)


async def test_a_large_request_is_divided_as_its_parts_are_handled() -> None:
    handler, asked = Handler(), request(*[1] * 40)
    task = asyncio.ensure_future(handler.asked(asked).result())
    await asyncio.sleep(0)
    assert handler.parts
    del asked.topics[5:]
    response = await task
    assert isinstance(response, OffsetDeleteResponse)
    assert len(response.topics) == 2 * PART_ROWS, "the next part has its turn later"


async def test_other_tasks_run_in_between() -> None:
    handler = Handler()
    task = asyncio.ensure_future(handler.asked(request(20)).result())
    seen = []
    while not task.done():
        seen.append(len(handler.parts))
        await asyncio.sleep(0)
    assert set(range(1, 6)) <= {*seen, len(handler.parts)}


async def test_the_error_of_a_part_is_that_of_the_request() -> None:
    handler = Handler(fails_at=2)
    response = await handler.asked(request(20)).result()
    assert response == replace(OffsetDeleteResponse(), error_code=ErrorCode.NOT_COORDINATOR)
    assert len(handler.parts) == 2
