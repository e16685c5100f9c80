"""kafka-python's forgotten sockets fail no other test."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import Any

from kafka.net.inet import KafkaNetSocket


def test_a_socket_in_a_garbage_cycle_is_closed_without_a_warning() -> None:
    cycle: list[Any] = [KafkaNetSocket().socket(socket.AF_INET)]
    number = cycle[0].fileno()
    cycle.append(cycle)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        del cycle
        gc.collect()
    assert not [each for each in found if issubclass(each.category, ResourceWarning)]
    with socket.socket() as another:
        assert another.fileno() == number, "it is closed"
