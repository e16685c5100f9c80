"""Full collections examine the objects since the last one, and from time to time all objects."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator, Mapping

import pytest

from gateway.garbage_collection import THAW_S, GarbageCollection


class Node:
    """A part of a cycle: only the collector finds it."""

    def __init__(self) -> None:
        self.other: object = self


@pytest.fixture
def garbage() -> Iterator[GarbageCollection]:
    collection = GarbageCollection()
    collection.start()
    yield collection
    collection.stop()


def test_a_collection_deletes_a_bounded_number_of_objects(garbage: GarbageCollection) -> None:
    """The event loop is blocked meanwhile."""
    deleted: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop":
            deleted.append(info["collected"])

    gc.callbacks.append(note)
    try:
        for _ in range(100_000):
            Node()
    finally:
        gc.callbacks.remove(note)
    assert sum(deleted) > 50_000
    assert max(deleted) < 25_000


def test_what_survives_a_full_collection_is_not_walked_over_again(garbage: GarbageCollection) -> None:
    frozen = gc.get_freeze_count()
    nodes = [Node() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(nodes)
    assert not any(isinstance(each, Node) for each in gc.get_objects())


def test_frozen_objects_go_with_their_last_reference(garbage: GarbageCollection) -> None:
    node = Node()
    node.other = None
    gc.collect()
    gone = weakref.ref(node)
    del node
    assert gone() is None


def test_a_frozen_cycle_goes_with_the_next_thaw(garbage: GarbageCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    gc.collect()
    gone = weakref.ref(node)
    del node
    gc.collect()
    garbage.keep_house()
    assert gone() is not None
    later_s = time.monotonic() + THAW_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    garbage.keep_house()
    assert gone() is None


def test_stopped_it_leaves_the_process_as_it_was() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    collection = GarbageCollection()
    collection.start()
    collection.stop()
    assert (gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()) == (*before, 0)
