"""ListGroups (key 16), v0-v5. v1 throttle time; v3 flexible; v4 states (KIP-518); v5 types (KIP-848)."""

from __future__ import annotations

from gateway.coordination.groups.listing import list_groups
from gateway.fan_out import sliced
from gateway.requests.call import Call
from protocol.kafka.messages.groups import ListGroupsRequest, ListGroupsResponse

STATES_VERSION, TYPES_VERSION = 4, 5


async def handle(call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    request = call.request
    states = request.states_filter if call.version >= STATES_VERSION else ()
    types = request.types_filter if call.version >= TYPES_VERSION else ()
    error, groups = await list_groups(call.cluster.groups, states or (), types or ())
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            async for group in sliced(groups)
        ],
    )
