"""aiokafka."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from aiokafka.errors import for_code  # type: ignore[import-untyped]

from tests.clients.drivers.aiokafka_login import server_settings
from tests.clients.drivers.lines import Unsupported, decoded, encoded, serve

TIMEOUT_S = 30.0
POLL_MS = 100


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._server: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._member: Any = None
        self._transactional: Any = None

    def error_name(self, error: Exception) -> str:
        return type(error).__name__

    async def log_in(self, **login: Any) -> None:
        self._server = server_settings(**login)
        async with _Admin(self._server) as admin:
            await admin.list_topics()

    async def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        async with _Admin(self._server) as admin:
            _check(await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]), "topic_errors")

    async def delete_topic(self, topic: str) -> None:
        async with _Admin(self._server) as admin:
            _check(await admin.delete_topics([topic]), "topic_error_codes")

    async def add_partitions(self, topic: str, partitions: int) -> None:
        async with _Admin(self._server) as admin:
            _check(await admin.create_partitions({topic: NewPartitions(partitions)}), "topic_errors")

    async def partitions(self, topic: str) -> int | None:
        async with _Admin(self._server) as admin:
            if topic not in await admin.list_topics():
                return None
            (found,) = await admin.describe_topics([topic])
            return len(found["partitions"])

    async def configs(self, topic: str, names: list[str]) -> dict[str, str]:
        async with _Admin(self._server) as admin:
            (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            values = {entry[0]: entry[1] for entry in found.resources[0][4]}
            return {name: values[name] for name in names}

    async def set_config(self, topic: str, name: str, value: str) -> None:
        async with _Admin(self._server) as admin:
            (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
            if answer.resources[0][0]:
                raise for_code(answer.resources[0][0])

    async def delete_records(self, topic: str, partition: int, offset: int) -> None:
        async with _Admin(self._server) as admin:
            await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(offset)})

    async def produce(
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
            "enable_idempotence": idempotent or transaction is not None,
            "transactional_id": transaction["id"] if transaction else None,
        }
        producer = AIOKafkaProducer(**self._server, **config)
        await producer.start()
        try:
            if not transaction:
                return await self._send(producer, topic, records)
            await producer.begin_transaction()
            answers = await self._send(producer, topic, records)
            await self._end(producer, transaction["end"])
            return answers
        finally:
            await producer.stop()

    async def open(self, topic: str, records: list[dict[str, Any]], id: str, timeout_ms: int) -> list[list[int]]:
        self._transactional = await self._begun(id, timeout_ms)
        return await self._send(self._transactional, topic, records)

    async def finish(self, end: str) -> None:
        await self._end(self._transactional, end)

    async def copy(self, source: str, topic: str, group: str, id: str, count: int, end: str, timeout_ms: int) -> int:
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        producer = await self._begun(id, timeout_ms)
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with self._consumer(group, **settings) as consumer:
            consumer.subscribe([source])
            while len(records) < count and time.monotonic() < deadline:
                records += await self._take(consumer)
            await self._send(producer, topic, records)
            offsets = {each: await consumer.position(each) for each in consumer.assignment()}
            await producer.send_offsets_to_transaction(offsets, group)
            await self._end(producer, end)
        await producer.stop()
        return len(records)

    async def _begun(self, transactional_id: str, timeout_ms: int) -> Any:
        """Must be called in the event loop."""
        ids = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        producer = AIOKafkaProducer(**self._server, **ids)
        await producer.start()
        await producer.begin_transaction()
        return producer

    async def _end(self, producer: Any, end: str) -> None:
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        count: int,
        timeout_ms: int,
        max_bytes: int | None,
        isolation: str,
    ) -> list[dict[str, Any]]:
        settings: dict[str, Any] = {"isolation_level": isolation}
        settings |= {"max_partition_fetch_bytes": max_bytes} if max_bytes is not None else {}
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        async with self._consumer(**settings) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek(TopicPartition(topic, partition), offset)
            while len(found) < count and time.monotonic() < deadline:
                found += await self._take(consumer)
        return found[:count]

    async def bounds(self, topic: str, partition: int) -> list[int]:
        where = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            return [(await consumer.beginning_offsets([where]))[where], (await consumer.end_offsets([where]))[where]]

    async def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        where = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
        return None if found is None else int(found.offset)

    async def join(
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
        self._member = self._consumer(
            group,
            auto_offset_reset="earliest",
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
            group_instance_id=instance_id,
        )
        self._member.subscribe(**{"pattern": f"^{pattern}"} if pattern else {"topics": topics})
        await self._member.start()

    async def poll(self, count: int, timeout_ms: int, assigned: int | None) -> dict[str, Any]:
        records: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            records += await self._take(self._member)
            held = sorted([each.topic, each.partition] for each in self._member.assignment())
            if len(records) >= count and assigned in (None, len(held)):
                break
        return {"records": records, "assigned": held}

    async def commit(self) -> None:
        await self._member.commit()

    async def leave(self) -> None:
        await self._member.stop()

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        async with self._consumer(group) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            found: int | None = await consumer.committed(TopicPartition(topic, partition))
            return found

    async def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        async with self._consumer(group) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            await consumer.commit({TopicPartition(topic, partition): offset})

    async def describe_group(self, group: str) -> dict[str, Any]:
        async with _Admin(self._server) as admin:
            (found,) = await admin.describe_consumer_groups([group])
            _, _, state, _, _, members, *_ = found.groups[0]
            return {"state": state, "members": len(members)}

    async def groups(self, prefix: str) -> list[str]:
        async with _Admin(self._server) as admin:
            found = await admin.list_consumer_groups()
        return sorted(each[0] for each in found if each[0].startswith(prefix))

    def _consumer(self, group: str | None = None, **settings: Any) -> Any:
        """Must be called in the event loop."""
        config = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "none", **settings}
        return AIOKafkaConsumer(**self._server, **config)

    async def _take(self, consumer: Any) -> list[dict[str, Any]]:
        batches = (await consumer.getmany(timeout_ms=POLL_MS)).values()
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

    async def _send(self, producer: Any, topic: str, records: list[dict[str, Any]]) -> list[list[int]]:
        sent = [
            await producer.send(
                topic,
                value=decoded(record["value"]),
                key=decoded(record["key"]),
                headers=[(name, decoded(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        async with asyncio.timeout(TIMEOUT_S):
            answers = [await future for future in sent]
        return [[-1, -1] if answer is None else [answer.partition, answer.offset] for answer in answers]


class _Admin:
    def __init__(self, server: dict[str, Any]) -> None:
        self._server = server

    async def __aenter__(self) -> Any:
        self._client = AIOKafkaAdminClient(**self._server)
        await self._client.start()
        return self._client

    async def __aexit__(self, *reason: object) -> None:
        await self._client.close()


class _Blocking:
    """Coroutines as plain calls, for `serve`. The loop runs between them, with the group's heartbeats."""

    def __init__(self, driver: Aiokafka) -> None:
        self._driver = driver
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        action = getattr(self._driver, name)
        if name == "error_name":
            return action
        return lambda **arguments: asyncio.run_coroutine_threadsafe(action(**arguments), self._loop).result()


def _check(response: Any, field: str) -> None:
    for _, code, *_ in getattr(response, field):
        if code:
            raise for_code(code)


serve(_Blocking(Aiokafka(sys.argv[1])))
