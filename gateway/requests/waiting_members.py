"""JoinGroup and SyncGroup wait for other members of the group, for minutes.

As in Kafka, their memory does not count meanwhile: a group whose members fill the memory of all requests would wait for
members whose requests are not read. The coordinator has what it needs of them, and bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.requests.call import Call, asks
from gateway.requests.reply import R, Reply
from protocol.kafka.messages.groups import JoinGroupRequest, SyncGroupRequest


def waits_for_members(call: Call) -> bool:
    return asks(call, JoinGroupRequest) or asks(call, SyncGroupRequest)


def without_request(call: Call, answered: asyncio.Future[R]) -> Reply:
    """The reply to such a request, of which nothing large is kept."""
    if asks(call, JoinGroupRequest):
        call.request.protocols = []
    elif asks(call, SyncGroupRequest):
        call.request.assignments = []
    if call.frame is not None:
        call.frame = bytearray()
    reply = Reply.later(answered)
    reply.needs_request = False
    return reply


async def without_request_when(sent: Callable[[], Awaitable[None]], call: Call, answered: asyncio.Future[R]) -> Reply:
    """The same, when another gateway has been sent the request."""
    await sent()
    return without_request(call, answered)
