"""Messages between gateways, and those that take long to encode, decode or merge: this is done in threads.

Produce is not among them: its rows have records, which are not read here, and their order matters. Of Fetch, the shares
are: `large_waiting_fetch` makes them, and takes their rows, in slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from gateway.forwarding.peers import Encode
from gateway.requests.call import Call, asks
from gateway.requests.reply import Reply, Response
from gateway.requests.routes import Route
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import decode_response, encode_request, readdress_request
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import FetchRequest, ProduceRequest
from protocol.kafka.value_counts import has_more_rows

LARGE_ROWS = 2_000
LARGE_ANSWER_BYTES = 64 * 1024
_LENGTH_BYTES = 4


def is_large(call: Call) -> bool:
    """Whether the request has so many rows that it is split in slices, and its shares are encoded in threads."""
    if asks(call, FetchRequest):
        return sum([len(topic.partitions) for topic in call.request.topics]) > LARGE_ROWS
    if call.api.route is None or asks(call, ProduceRequest):
        return False
    return has_more_rows(call.api.request, call.request, LARGE_ROWS)


def is_large_answer(call: Call, frame: bytearray) -> bool:
    """Whether the answer to a share has to be decoded in a thread."""
    if call.frame is not None or len(frame) <= LARGE_ANSWER_BYTES:
        return False
    if asks(call, FetchRequest):  # records take no time
        return is_large(call)
    return call.api.route is not None and not asks(call, ProduceRequest)


def encode_call(call: Call, correlation_id: int) -> list[Buffer]:
    if call.frame is not None:
        return readdress_request(call.frame, correlation_id)
    return encode_request(call.api.request, call.version, correlation_id, call.client_id, call.request)


async def encoded(call: Call) -> Encode:
    """Encodes the request, and returns the function that puts the correlation id into it."""
    frame = await asyncio.to_thread(_frame, call)
    return partial(readdress_request, frame)


def _frame(call: Call) -> bytearray:
    return bytearray(b"".join(encode_call(call, 0)))[_LENGTH_BYTES:]


async def decoded(call: Call, frame: bytearray) -> Message:
    """Raises ValueError."""
    return await asyncio.to_thread(decode_response, call.api.response, call.version, memoryview(frame))


async def merged(route: Route, replies: Sequence[Reply]) -> Response:
    """None for a produce request with acks=0, which has no answer. Raises what any share raises."""
    answers = await asyncio.gather(*(reply.result() for reply in replies))
    responses = [answer for answer in answers if isinstance(answer, Message)]  # a share's answer is never relayed
    if len(responses) < len(answers):
        return None
    if any(has_more_rows(type(response), response, LARGE_ROWS) for response in responses):
        return await asyncio.to_thread(route.merge, responses)
    return route.merge(responses)
