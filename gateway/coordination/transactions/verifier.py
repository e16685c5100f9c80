"""Whether a batch belongs to an open transaction: the partition's leader asks the coordinator (KIP-890).

A producer that lost its transaction unnoticed could otherwise begin another in the partition that nobody ever ends.
"""

from __future__ import annotations

from coordinator.topics import TopicPartition
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from gateway.coordination.partition.coordinators import Coordinators
from protocol.kafka.errors import ErrorCode

ADDS_VERSION = 2
"""The `transaction.version` of clients that leave it to leaders to add partitions."""


class Verifier:
    def __init__(self, coordinators: Coordinators[TransactionCoordinator]) -> None:
        self._coordinators = coordinators

    async def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, *, add: bool
    ) -> ErrorCode:
        """NONE if the partition is part of the producer's open transaction; with `add`, it becomes one.

        Other codes are the coordinator's, those of AddPartitionsToTxn's newest version, or NETWORK_EXCEPTION if it
        could not be asked: see `coordinator.transaction.version_errors` for what clients are told.
        """
        if add:
            asked = AddPartitionsRequest(transactional_id, producer, frozenset({partition}), ADDS_VERSION)
            return await self._coordinators.ask(
                transactional_id,
                lambda coordinator, now_ms, reply: coordinator.add_partitions(asked, now_ms, reply),
                ErrorCode,
            )
        asked = AddPartitionsRequest(transactional_id, producer, frozenset({partition}))
        return self._coordinators.run(
            transactional_id, lambda coordinator, now_ms: coordinator.verify_partitions(asked)[partition]
        )
