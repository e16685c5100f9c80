"""kafka-python, of the 1.4, 2.0 and 3.0 lines."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.clients.drivers.kafka_python_admin import new_admin
from tests.clients.drivers.kafka_python_login import server_settings
from tests.clients.drivers.lines import Unsupported, decoded, encoded, serve

TIMEOUT_S = 30.0
MAJOR = int(kafka.__version__.split(".")[0])
POLL_MS = 500
MEMBER_POLL_MS = 5_000 if MAJOR >= 3 else POLL_MS
"""kafka-python 3 forgets an assignment for good if `poll` ends before the SyncGroup response, on Kafka too."""


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._server: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._admin_client: Any = None
        self._member: Any = None
        self._transactional: Any = None

    def error_name(self, error: Exception) -> str:
        return type(error).__name__

    def __getattr__(self, name: str) -> Any:
        """Administration has an object of its own."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._admin_client is None:
            self._admin_client = new_admin(self._server)
        return getattr(self._admin_client, name)

    def log_in(self, **login: Any) -> None:
        if (login["mechanism"] or "").startswith("SCRAM") and MAJOR < 2:
            raise Unsupported("no SCRAM")
        self._server = server_settings(**login)
        self._admin_client = None
        consumer = self._consumer()
        consumer.topics()
        consumer.close()

    def partitions(self, topic: str) -> int | None:
        consumer = self._consumer()
        found = topic in consumer.topics() and consumer.partitions_for_topic(topic)
        consumer.close()
        return len(found) if found else None

    def produce(
        self,
        topic: str,
        records: list[dict[str, Any]],
        acks: str,
        codec: str,
        idempotent: bool,
        transaction: dict[str, str] | None,
    ) -> list[list[int]]:
        config: dict[str, Any] = {
            "acks": acks if acks == "all" else int(acks),
            "compression_type": None if codec == "none" else codec,
            "linger_ms": 20,
            "max_request_size": 10_000_000,
        }
        config |= self._exactly_once(idempotent, transaction)
        producer = KafkaProducer(**self._server, **config)
        try:
            return self._send(producer, topic, records, transaction)
        finally:
            producer.close(TIMEOUT_S)

    def _exactly_once(self, idempotent: bool, transaction: dict[str, str] | None) -> dict[str, Any]:
        if MAJOR >= 3:
            return {
                "enable_idempotence": idempotent or transaction is not None,
                "transactional_id": transaction["id"] if transaction else None,
            }
        if idempotent or transaction:
            raise Unsupported("no idempotent producer")
        return {}

    def open(self, topic: str, records: list[dict[str, Any]], id: str, timeout_ms: int) -> list[list[int]]:
        self._transactional = producer = self._begun(id, timeout_ms)
        return self._send(producer, topic, records, None)

    def finish(self, end: str) -> None:
        self._end(self._transactional, end)

    def copy(self, source: str, topic: str, group: str, id: str, count: int, end: str, timeout_ms: int) -> int:
        producer = self._begun(id, timeout_ms)
        consumer = self._consumer(group, auto_offset_reset="earliest", isolation_level="read_committed")
        consumer.subscribe(topics=[source])
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(records) < count and time.monotonic() < deadline:
            records += self._take(consumer)
        self._send(producer, topic, records, None)
        offsets = {each: OffsetAndMetadata(consumer.position(each), "", -1) for each in consumer.assignment()}
        producer.send_offsets_to_transaction(offsets, group)
        self._end(producer, end)
        producer.close(TIMEOUT_S)
        consumer.close()
        return len(records)

    def _begun(self, transactional_id: str, timeout_ms: int) -> Any:
        settings = self._exactly_once(False, {"id": transactional_id}) | {"transaction_timeout_ms": timeout_ms}
        producer = KafkaProducer(**self._server, **settings)
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def _end(self, producer: Any, end: str) -> None:
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        count: int,
        timeout_ms: int,
        max_bytes: int | None,
        isolation: str,
    ) -> list[dict[str, Any]]:
        settings: dict[str, Any] = {"max_partition_fetch_bytes": max_bytes} if max_bytes is not None else {}
        if MAJOR >= 3:
            settings |= {"isolation_level": isolation}
        elif isolation != "read_uncommitted":
            raise Unsupported("no isolation level")
        consumer = self._consumer(**settings)
        consumer.assign([TopicPartition(topic, partition)])
        consumer.seek(TopicPartition(topic, partition), offset)
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            while len(found) < count and time.monotonic() < deadline:
                found += self._take(consumer)
        finally:
            consumer.close()
        return found[:count]

    def bounds(self, topic: str, partition: int) -> list[int]:
        consumer, where = self._consumer(), TopicPartition(topic, partition)
        found = [consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]]
        consumer.close()
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer, where = self._consumer(), TopicPartition(topic, partition)
        found = consumer.offsets_for_times({where: timestamp})[where]
        consumer.close()
        return None if found is None else int(found.offset)

    def join(
        self,
        group: str,
        topics: list[str],
        pattern: str | None,
        session_timeout_ms: int,
        instance_id: str | None,
        assignor: str | None,
        protocol: str | None,
    ) -> None:
        if assignor or protocol:
            raise Unsupported(f"no {assignor or protocol} protocol")
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": 500,
            "metadata_max_age_ms": 1000,
        }
        if instance_id and MAJOR < 3:
            raise Unsupported("no static membership")
        settings |= {"group_instance_id": instance_id} if instance_id else {}
        self._member = self._consumer(group, **settings)
        self._member.subscribe(**{"pattern": f"^{pattern}"} if pattern else {"topics": topics})

    def poll(self, count: int, timeout_ms: int, assigned: int | None) -> dict[str, Any]:
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            records += self._take(self._member)
            held = sorted([each.topic, each.partition] for each in self._member.assignment())
            if len(records) >= count and assigned in (None, len(held)):
                break
        return {"records": records, "assigned": held}

    def commit(self) -> None:
        self._member.commit()

    def leave(self) -> None:
        self._member.close()

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        consumer, where = self._consumer(group), TopicPartition(topic, partition)
        consumer.assign([where])
        found: int | None = consumer.committed(where)
        consumer.close()
        return found

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer, where = self._consumer(group), TopicPartition(topic, partition)
        consumer.assign([where])
        fields = (offset, "", -1) if len(OffsetAndMetadata._fields) == 3 else (offset, "")
        consumer.commit({where: OffsetAndMetadata(*fields)})
        consumer.close()

    def _consumer(self, group: str | None = None, **settings: Any) -> Any:
        config = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "none", **settings}
        return KafkaConsumer(**self._server, **config)

    def _take(self, consumer: Any) -> list[dict[str, Any]]:
        batches = consumer.poll(timeout_ms=MEMBER_POLL_MS if consumer.subscription() else POLL_MS).values()
        return [self._record(record) for batch in batches for record in batch]

    def _record(self, record: Any) -> dict[str, Any]:
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": encoded(record.key),
            "value": encoded(record.value),
            "headers": [[name, encoded(value)] for name, value in record.headers],
        }

    def _send(
        self, producer: Any, topic: str, records: list[dict[str, Any]], transaction: dict[str, str] | None
    ) -> list[list[int]]:
        if transaction:
            producer.init_transactions()
            producer.begin_transaction()
        futures = [
            producer.send(
                topic,
                value=decoded(record["value"]),
                key=decoded(record["key"]),
                headers=[(name, decoded(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        answers = [future.get(TIMEOUT_S) for future in futures]
        if transaction:
            self._end(producer, transaction["end"])
        return [[answer.partition, answer.offset] for answer in answers]


logging.basicConfig(level=logging.ERROR)
serve(KafkaPython(sys.argv[1]))
