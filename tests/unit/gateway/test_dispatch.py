"""The requests that are decoded in a thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gateway.config import Config
from gateway.dispatch import LARGE_FRAME_BYTES, Dispatcher
from gateway.requests.cluster import Cluster

PRODUCE, METADATA = 0, 3
LIMIT = Config().limits.max_control_request_bytes


@pytest.mark.parametrize(
    ("api_key", "size_bytes", "expected"),
    [
        (METADATA, LARGE_FRAME_BYTES, False),
        (METADATA, LARGE_FRAME_BYTES + 1, True),
        (METADATA, LIMIT, True),
        pytest.param(METADATA, LIMIT + 1, False, id="refused unread: it waits for no memory, and others not for it"),
        (PRODUCE, LIMIT, False),
    ],
)
def test_large_requests(api_key: int, size_bytes: int, expected: bool) -> None:
    dispatcher = Dispatcher(cast(Cluster, SimpleNamespace(config=Config())))
    assert dispatcher.is_large(bytearray(api_key.to_bytes(2, "big")).ljust(size_bytes)) is expected
