"""Forwards the events of the fleet, and of the topics of one cluster, to the cluster's services."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from coordinator.topics import DeletedTopic
from gateway.background import TaskGroup
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.transactions.transaction_service import TransactionService
from gateway.fleet.listener import FleetListener
from gateway.fleet.view import ClusterFleet
from gateway.log.registry import LogRegistry
from gateway.requests.partition_rows import PartitionRows
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener


class Changes(FleetListener, TopicListener):
    """Each method calls the services in a fixed order."""

    def __init__(
        self,
        fleet: ClusterFleet,
        topics: TopicCatalog,
        partition_rows: PartitionRows,
        logs: LogRegistry,
        groups: GroupService,
        transactions: TransactionService,
        tasks: TaskGroup,
    ) -> None:
        self._fleet = fleet
        self._topics = topics
        self._partition_rows = partition_rows
        self._logs = logs
        self._groups = groups
        self._coordinators = (groups.coordinators, transactions.coordinators)
        self._tasks = tasks

    def leaders_changed(self) -> None:
        # At once: when `release_partitions` runs, this gateway may lead again, although another one led in between.
        for coordinators in self._coordinators:
            coordinators.follow_placement()
        self._logs.start_closing(self._is_outdated)

    async def release_partitions(self) -> None:
        await asyncio.gather(
            *(coordinators.release_partitions() for coordinators in self._coordinators),
            self._logs.close_those(self._is_outdated),
        )

    def lease_lost(self) -> None:
        self._logs.on_lease_lost()
        for coordinators in self._coordinators:
            coordinators.check_lease()

    async def stop_topic(self, topic: str) -> None:
        self._topics.hide(topic)
        await asyncio.gather(self._logs.forget_topic(topic), self._groups.leave_topic(topic))

    def topic_turn_ended(self, topic: str) -> None:
        self._topics.show(topic)

    def topics_deleted(self, topics: Collection[DeletedTopic]) -> None:
        for topic in topics:
            if self._topics.forget(topic.name, topic.topic_id):
                self.topic_gone(topic.name)
        self._groups.forget_topics(topics)

    def topic_changed(self, name: str) -> None:
        self._groups.subscribed_topics.topic_changed(name)

    def topic_gone(self, name: str) -> None:
        self._partition_rows.forget(name)
        self._tasks.run_once("forget topic", self._logs.forget_topic(name))

    def _is_outdated(self, topic: str, partition: int) -> bool:
        """Another gateway leads the partition, or led it before."""
        opened = self._logs.find(topic, partition)
        return not self._fleet.leads(topic, partition) or (opened is not None and opened.follows_leader)
