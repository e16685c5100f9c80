"""kafka-python's forgotten sockets fail no other test."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket

HOST = "127.0.0.1"


def test_a_socket_in_a_garbage_cycle_is_closed_without_a_warning() -> None:
    forgotten = KafkaNetSocket().socket(socket.AF_INET)
    forgotten.bind((HOST, 0))
    forgotten.listen()
    address = forgotten.getsockname()
    cycle: list[Any] = [forgotten]
    cycle.append(cycle)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        del forgotten, cycle
        gc.collect()
    assert not [each for each in found if issubclass(each.category, ResourceWarning)]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
