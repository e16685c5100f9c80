"""Large requests are decoded in a thread, while the event loop serves others."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.network.answers import Place
from gateway.network.held_memory import HeldMemory
from gateway.network.host import Host
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from protocol.kafka.value_counts import count_values


async def decode_large(
    host: Host, memory: HeldMemory, context: RequestContext, frame: bytearray, place: Place
) -> Place:
    """Decode it once there is memory for the decoded request."""

    def decode() -> tuple[Call, int]:
        """Return the call, and the number of values in its lists."""
        call = host.dispatcher.begin(frame, context)
        return call, count_values(call.api.request, call.request)

    in_thread = partial(asyncio.get_running_loop().run_in_executor, host.threads, decode)
    place.decoded(*await memory.decode(context.sharer, len(frame), in_thread))
    return place
