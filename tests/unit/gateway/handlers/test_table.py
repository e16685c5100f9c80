"""What the rows of the handler table say."""

from __future__ import annotations

from kafka.protocol.api_key import ApiKey

from gateway.handlers.table import APIS


def test_requests_that_only_add_or_look_may_be_pipelined() -> None:
    assert {api.key for api in APIS.values() if api.pipelined} == {
        ApiKey.Produce, ApiKey.ListOffsets, ApiKey.OffsetCommit, ApiKey.WriteTxnMarkers,
    }  # fmt: skip
