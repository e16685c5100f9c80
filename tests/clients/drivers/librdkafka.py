"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import sys
import time
import uuid
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.drivers.lines import decoded, encoded, serve

TIMEOUT_S = 30.0
POLL_S = 0.1
TOKEN_LIFETIME_S = 3_600
LOGIN_SETTINGS = {
    "user": "sasl.username",
    "password": "sasl.password",
    "authority": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
}
"""Argument of log_in → setting."""


class Librdkafka:
    def __init__(self, bootstrap: str) -> None:
        self._config: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 3}
        self._admin = AdminClient(self._config)
        self._member: ck.Consumer | None = None
        self._transactional: ck.Producer | None = None

    def error_name(self, error: Exception) -> str:
        cause = error.args[0] if error.args else error
        return str(cause.name()) if isinstance(cause, ck.KafkaError) else type(error).__name__

    def log_in(self, bootstrap: str, security: str, mechanism: str | None, token: str | None, **rest: Any) -> None:
        """A refused login is reported by `poll`; a metadata request would only time out."""
        settings = {name: rest[argument] for argument, name in LOGIN_SETTINGS.items() if rest[argument] is not None}
        self._config = {"bootstrap.servers": bootstrap, "security.protocol": security, "log_level": 3, **settings}
        if mechanism:
            self._config["sasl.mechanism"] = mechanism
        if token:
            self._config["oauth_cb"] = lambda _: (token, time.time() + TOKEN_LIFETIME_S)
        told: list[ck.KafkaError] = []
        noted: dict[str, Any] = {**self._config, "error_cb": told.append}
        self._admin = AdminClient(noted)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._admin.list_topics(timeout=POLL_S)
                return
            except ck.KafkaException:
                self._admin.poll(POLL_S)
                refusals = [each for each in told if each.code() != ck.KafkaError._ALL_BROKERS_DOWN]
                if refusals:
                    raise ck.KafkaException(refusals[0]) from None
                if time.monotonic() >= deadline:
                    raise

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
        self._result(self._admin.create_topics([new], operation_timeout=TIMEOUT_S))

    def delete_topic(self, topic: str) -> None:
        self._result(self._admin.delete_topics([topic], operation_timeout=TIMEOUT_S))

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._result(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def partitions(self, topic: str) -> int | None:
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return None if found is None else len(found.partitions)

    def configs(self, topic: str, names: list[str]) -> dict[str, str]:
        entries = self._result(self._admin.describe_configs([self._resource(topic)]))
        return {name: entries[name].value for name in names}

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        self._result(self._admin.incremental_alter_configs([self._resource(topic, [entry])]))

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        self._result(self._admin.delete_records([ck.TopicPartition(topic, partition, offset)]))

    def produce(
        self,
        topic: str,
        records: list[dict[str, Any]],
        acks: str,
        codec: str,
        idempotent: bool,
        transaction: dict[str, str] | None,
    ) -> list[list[int]]:
        config = {
            **self._config,
            "acks": acks,
            "compression.type": codec,
            "enable.idempotence": idempotent or transaction is not None,
            "linger.ms": 20,
            "message.max.bytes": 10_000_000,
            "message.timeout.ms": TIMEOUT_S * 1000,
        }
        if transaction:
            config |= {"transactional.id": transaction["id"], "transaction.timeout.ms": TIMEOUT_S * 1000}
        producer = ck.Producer(config)
        if transaction:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
        answers = self._send(producer, topic, records)
        if transaction:
            self._end(producer, transaction["end"])
        return answers

    def open(self, topic: str, records: list[dict[str, Any]], id: str, timeout_ms: int) -> list[list[int]]:
        self._transactional = producer = self._begun(id, timeout_ms)
        return self._send(producer, topic, records)

    def finish(self, end: str) -> None:
        assert self._transactional is not None
        self._end(self._transactional, end)

    def copy(self, source: str, topic: str, group: str, id: str, count: int, end: str, timeout_ms: int) -> int:
        consumer = self._consumer(group, **{"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        consumer.subscribe([source])
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(records) < count and time.monotonic() < deadline:
            records += self._take(consumer, count - len(records))
        producer = self._begun(id, timeout_ms)
        self._send(producer, topic, records)
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        self._end(producer, end)
        consumer.close()
        return len(records)

    def _begun(self, transactional_id: str, timeout_ms: float) -> ck.Producer:
        ids = {"transactional.id": transactional_id, "transaction.timeout.ms": int(timeout_ms)}
        # The default timeout is longer than most transactions of the cases may be.
        producer = ck.Producer({**self._config, **ids, "message.timeout.ms": int(timeout_ms), "linger.ms": 20})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        return producer

    def _end(self, producer: ck.Producer, end: str) -> None:
        if end == "commit":
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

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
        settings: dict[str, Any] = {"isolation.level": isolation}
        if max_bytes is not None:
            settings |= {"max.partition.fetch.bytes": max_bytes}
        consumer = self._consumer(**settings)
        consumer.assign([ck.TopicPartition(topic, partition, offset)])
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(found) < count and time.monotonic() < deadline:
            found += self._take(consumer, count - len(found))
        consumer.close()
        return found

    def bounds(self, topic: str, partition: int) -> list[int]:
        consumer = self._consumer()
        low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), TIMEOUT_S)
        consumer.close()
        return [low, high]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer()
        (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, partition, timestamp)], TIMEOUT_S)
        consumer.close()
        return None if found.offset < 0 else int(found.offset)

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
        settings: dict[str, Any] = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000}
        if protocol == "consumer":
            settings |= {"group.protocol": protocol}
        else:
            settings |= {"session.timeout.ms": session_timeout_ms, "heartbeat.interval.ms": 500}
            settings |= {"partition.assignment.strategy": assignor or "range"}
        if instance_id:
            settings |= {"group.instance.id": instance_id}
        self._member = self._consumer(group, **settings)
        self._member.subscribe([f"^{pattern}"] if pattern else topics)

    def poll(self, count: int, timeout_ms: int, assigned: int | None) -> dict[str, Any]:
        assert self._member is not None
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            records += self._take(self._member, 100)
            held = sorted([each.topic, each.partition] for each in self._member.assignment())
            if len(records) >= count and assigned in (None, len(held)):
                break
        return {"records": records, "assigned": held}

    def commit(self) -> None:
        assert self._member is not None
        self._member.commit(asynchronous=False)

    def leave(self) -> None:
        assert self._member is not None
        self._member.close()

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        consumer = self._consumer(group)
        (found,) = consumer.committed([ck.TopicPartition(topic, partition)], TIMEOUT_S)
        consumer.close()
        return None if found.offset < 0 else int(found.offset)

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = self._consumer(group)
        consumer.commit(offsets=[ck.TopicPartition(topic, partition, offset)], asynchronous=False)
        consumer.close()

    def describe_group(self, group: str) -> dict[str, Any]:
        found = self._result(self._admin.describe_consumer_groups([group]))
        return {"state": found.state.name, "members": len(found.members)}

    def groups(self, prefix: str) -> list[str]:
        found = self._admin.list_consumer_groups().result(TIMEOUT_S)
        return sorted(each.group_id for each in found.valid if each.group_id.startswith(prefix))

    def delete_group(self, group: str) -> None:
        self._result(self._admin.delete_consumer_groups([group]))

    def _consumer(self, group: str | None = None, **settings: Any) -> ck.Consumer:
        return ck.Consumer(
            {
                **self._config,
                "group.id": group or f"unused-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **settings,
            }
        )

    def _take(self, consumer: ck.Consumer, count: int) -> list[dict[str, Any]]:
        messages = consumer.consume(count, POLL_S)
        for message in messages:
            if message.error():
                raise ck.KafkaException(message.error())
        return [self._record(message) for message in messages]

    def _record(self, message: Any) -> dict[str, Any]:
        return {
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": encoded(message.key()),
            "value": encoded(message.value()),
            "headers": [[name, encoded(value)] for name, value in message.headers() or []],
        }

    def _send(self, producer: ck.Producer, topic: str, records: list[dict[str, Any]]) -> list[list[int]]:
        answers: list[Any] = [None] * len(records)
        for index, record in enumerate(records):

            def delivered(error: Any, message: ck.Message, index: int = index) -> None:
                answers[index] = error or [message.partition(), message.offset()]

            options: dict[str, Any] = {}
            if record["partition"] is not None:
                options["partition"] = record["partition"]
            if record["timestamp"] is not None:
                options["timestamp"] = record["timestamp"]
            headers: Any = [(name, decoded(value)) for name, value in record["headers"]]
            key, value = decoded(record["key"]), decoded(record["value"])
            producer.produce(topic, value=value, key=key, headers=headers, on_delivery=delivered, **options)
        producer.flush(TIMEOUT_S)
        for answer in answers:
            if isinstance(answer, ck.KafkaError):
                raise ck.KafkaException(answer)
        return [[partition, -1 if offset is None else offset] for partition, offset in answers]

    def _resource(self, topic: str, entries: list[Any] | None = None) -> Any:
        return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)

    def _result(self, futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(TIMEOUT_S)


serve(Librdkafka(sys.argv[1]))
