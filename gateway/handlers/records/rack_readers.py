"""Consumers of a rack (KIP-392): the leader names the gateway of their rack, and that one reads for them."""

from __future__ import annotations

from gateway.fetching.fetched_parts import FetchPartitionState
from gateway.log.reading.log_start import START_AGE_S
from gateway.requests.brokers import preferred_reader
from gateway.requests.call import Call

CHECK_S = 30.0
"""Each look costs two requests to Pulsar, and a busy reader has very many logs of which consumers lag a little."""


def find_reader(call: Call, topic: str, part: FetchPartitionState, rack: str) -> None:
    """Name the reader of the consumer's `rack`, if this gateway leads the partition; otherwise this is the reader."""
    if rack and part.log is not None:
        if call.cluster.fleet.leads(topic, part.fetched.partition):
            _name_reader(call, topic, part, rack)
        else:
            _read_for_leader(part)


def _name_reader(call: Call, topic: str, part: FetchPartitionState, rack: str) -> None:
    """Only for an offset in range: a consumer that gets OFFSET_OUT_OF_RANGE from a reader returns to the leader."""
    offset, found = part.fetched.offset, part.log
    if found is not None and found.start.offset <= offset <= found.end_offset:
        part.preferred_reader = preferred_reader(call, topic, part.fetched.partition, rack)
        if part.preferred_reader is not None:  # the reader notices that the start has moved, and the leader must, too
            found.start.refresh_ahead(START_AGE_S)


def _read_for_leader(part: FetchPartitionState) -> None:
    """DeleteRecords and ListOffsets go to the leader. So here only fetches have the log start looked up."""
    found = part.log
    if found is not None:
        found.follows_leader = True
        if part.fetched.offset < found.end_offset:  # otherwise there is nothing yet that could be deleted
            found.start.refresh_ahead(CHECK_S)
