"""A group that is not there: Dead up to v5, an error with a message from v6 (KIP-1043)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.group.messages import DescribedGroup
from gateway.handlers.groups import describe_groups
from gateway.requests.policy import ALL_ALLOWED
from protocol.kafka.codec import encode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import DescribeGroupsResponse

DEAD = DescribedGroup(ErrorCode.NONE, "g", "Dead", message="Group g not found.")
EMPTY = DescribedGroup(ErrorCode.NONE, "g", "Empty")
LOADING = DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "g")


@pytest.mark.parametrize(
    ("group", "version", "expected"),
    [
        (DEAD, 5, (0, "Dead", None)),
        (DEAD, 6, (ErrorCode.GROUP_ID_NOT_FOUND, "Dead", "Group g not found.")),
        (EMPTY, 6, (0, "Empty", None)),
        (LOADING, 6, (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "", None)),
    ],
)
async def test_a_group_as_its_version_shows_it(
    group: DescribedGroup, version: int, expected: tuple[int, str, str | None]
) -> None:
    cluster = SimpleNamespace(groups=SimpleNamespace(run=lambda group_id, ask: group))
    request = SimpleNamespace(groups=["g"], include_authorized_operations=True)
    call = SimpleNamespace(
        cluster=cluster, context=SimpleNamespace(policy=ALL_ALLOWED), request=request, version=version,
        count_error=lambda code: None,
    )  # fmt: skip
    response: Any = await describe_groups.handle(cast(Any, call))
    [row] = response.groups
    assert (row.error_code, row.group_state, row.error_message) == expected
    assert encode_response(DescribeGroupsResponse, version, 1, response)
