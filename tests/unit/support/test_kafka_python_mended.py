"""What kafka-python 3.0.12 does wrong where a server hangs, and what the tests' members do instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NotCoordinatorError, RequestTimedOutError
from kafka.net.manager import KafkaConnectionManager

from tests.integration.kafka_python_mended import mend

HANGS, FETCHES = 1, 2


class Scene:
    """A consumer with two nodes: one without a connection, and one with a fetch in flight."""

    def __init__(self, failure: Exception | None = None) -> None:
        fetching = SimpleNamespace(connected=True, paused=False, in_flight_requests=["fetch"])
        nodes = [SimpleNamespace(node_id=node_id) for node_id in (HANGS, FETCHES)]
        self.manager: Any = SimpleNamespace(
            cluster=SimpleNamespace(brokers=lambda: nodes), _conns={FETCHES: fetching}, connection_delay=lambda _: 0
        )
        self.manager.least_loaded_node = lambda: KafkaConnectionManager.least_loaded_node(self.manager)
        self.dead: list[Exception] = []

        async def join() -> bytes:
            if failure is not None:
                raise failure
            return b"assignment"

        self.coordinator: Any = SimpleNamespace(
            _do_join_and_sync_async=join, coordinator_dead=self.dead.append, _join_task=None, need_rejoin=lambda: False
        )

    def mend(self) -> None:
        mend(SimpleNamespace(_coordinator=self.coordinator, _manager=self.manager))


def test_a_connected_node_is_asked() -> None:
    scene = Scene()
    assert {scene.manager.least_loaded_node() for _ in range(20)} == {HANGS}, "the guide can say less now"
    scene.mend()
    assert {scene.manager.least_loaded_node() for _ in range(20)} == {FETCHES}
    scene.manager._conns.clear()
    assert scene.manager.least_loaded_node() in {HANGS, FETCHES}


@pytest.mark.parametrize(("failure", "leaves"), [(RequestTimedOutError(), True), (NotCoordinatorError(), False)])
async def test_a_coordinator_that_does_not_answer_is_left(failure: Exception, leaves: bool) -> None:
    scene = Scene(failure)
    scene.mend()
    with pytest.raises(type(failure)):
        await scene.coordinator._do_join_and_sync_async()
    assert scene.dead == [failure] * leaves


async def test_a_join_that_is_answered() -> None:
    scene = Scene()
    scene.mend()
    assert await scene.coordinator._do_join_and_sync_async() == b"assignment"
    assert not scene.dead


def test_a_join_whose_result_was_not_taken_is_needed() -> None:
    scene = Scene()
    scene.mend()
    assert not scene.coordinator.need_rejoin()
    scene.coordinator._join_task = object()
    assert scene.coordinator.need_rejoin()
