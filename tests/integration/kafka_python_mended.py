"""What kafka-python 3.0.12 does wrong where a server hangs or is late, with Apache Kafka too, mended in a consumer.

Members of groups whose history is checked must go on, as those of the Java client do.
"""

from __future__ import annotations

from typing import Any

import kafka
from kafka.errors import KafkaConnectionError, RequestTimedOutError


def mend(consumer: kafka.KafkaConsumer) -> None:
    """Call it before the first ``poll``."""
    _keep_joins(consumer._coordinator)
    _leave_silent_coordinators(consumer._coordinator)
    _ask_connected_nodes(consumer._manager)


def _keep_joins(coordinator: Any) -> None:
    """It loses a completed join if topics' metadata changed since it sent its subscription and ``poll`` ends between
    the responses to JoinGroup and SyncGroup."""
    needs = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: coordinator._join_task is not None or needs()


def _leave_silent_coordinators(coordinator: Any) -> None:
    """It sends its joins to the same coordinator for ever, even if that does not answer them."""
    join = coordinator._do_join_and_sync_async

    async def join_or_leave() -> Any:
        try:
            return await join()
        except (RequestTimedOutError, KafkaConnectionError) as error:
            coordinator.coordinator_dead(error)
            raise

    coordinator._do_join_and_sync_async = join_or_leave


def _ask_connected_nodes(manager: Any) -> None:
    """It takes a node without a connection for less loaded than one with a fetch in flight. A server that hangs still
    accepts connections, so it is asked for metadata again and again, and the consumer never learns the new leaders."""
    choose = manager.least_loaded_node

    def least_loaded() -> Any:
        connections = {node.node_id: manager._conns.get(node.node_id) for node in manager.cluster.brokers()}
        in_flight = {
            node_id: len(connection.in_flight_requests)
            for node_id, connection in connections.items()
            if connection is not None and connection.connected and not connection.paused
        }
        return min(in_flight, key=in_flight.__getitem__) if in_flight else choose()

    manager.least_loaded_node = least_loaded
