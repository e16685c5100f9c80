"""The topics of one namespace: a cache of them, and their changes.

Brokers merge properties key by key, so clients that alter different configurations at the same time do not undo each
other's changes.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from gateway.background import to_the_end
from gateway.backoff import Backoff, retried
from gateway.errors import KafkaError
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError, ServiceNotReadyError
from gateway.topics import topic_names
from gateway.topics.known_topics import KnownTopics
from gateway.topics.left_partitions import create_partitioned
from gateway.topics.policy_changes import policy_change
from gateway.topics.requested_topics import RequestedTopics
from gateway.topics.topic import TOPIC_ID, Topic, config_properties
from gateway.topics.topic_configs import DEFAULTS, check_configs, writes_messages
from protocol.kafka.errors import ErrorCode

CHANGE_TIMEOUT_S = 30.0
"""How long a client waits for a change of its topic; the change itself continues after this time."""
POLICY_REACHES_ALL_S = 1.0
"""Brokers read changed policies independently, within milliseconds of the broker that answers."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
"""Between attempts to delete a topic that Pulsar has deleted in part only."""
NEWS_S = 2.0
"""By then, a deletion that another gateway has finished is known here."""
OTHERS_ARE_DONE_S = 1.0
"""Until then, other gateways should have added the partitions of which Pulsar has created some."""

T = TypeVar("T")

log = structlog.get_logger()


class TopicCatalog(KnownTopics):
    """The known topics, and changes to them. Methods raise KafkaError and PulsarError."""

    def __init__(
        self,
        admin: AdminClient,
        namespace: str,
        max_age_ms: int,
        defaults: Mapping[str, str] = DEFAULTS,
        system_namespace: str | None = None,
        *,
        timeout_ms: int = 10_000,
        fleet_turn: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """The other parameters are those of ``KnownTopics``.

        ``fleet_turn`` waits until no other gateway changes a topic; raises PulsarError.
        """
        super().__init__(admin, namespace, max_age_ms, defaults, system_namespace, timeout_ms=timeout_ms)
        self._fleet_turn = fleet_turn
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Changes of a topic take turns, here and in the fleet. Pulsar loses partitions that are added by two requests
        at the same time, and leaves some behind that are added while the topic is being deleted. Raises PulsarError.
        """
        async with self._changing.setdefault(name, asyncio.Lock()), self._fleet_turn(name):
            yield

    def _turn_if_kept(self, name: str) -> AbstractAsyncContextManager[None]:
        """Changes of a topic that is being deleted need not wait: they will not find it."""
        return nullcontext() if name in self._deleting else self.turn(name)

    async def check_creatable(self, name: str) -> None:
        """Raises KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS or INVALID_REQUEST."""
        if name == topic_names.CLUSTER_METADATA:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        reason = topic_names.invalid_reason(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if await self.get(name, fresh=True) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        key = topic_names.collision_key(name)
        for other in await self._listing.names():
            if topic_names.collision_key(other) == key and other != name:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        await self.check_creatable(name)
        return await self.change("create topic", self._create(name, partitions, configs))

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        if name in self._deleting:  # As in Kafka, it exists until it is deleted.
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        await self._until_deleted_elsewhere(name)
        async with self.turn(name):
            return await self._create_now(name, partitions, configs)

    async def _until_deleted_elsewhere(self, name: str) -> None:
        """Another gateway may have told its client already that the topic is deleted."""
        if self._is_hidden(name):
            with suppress(TimeoutError):
                async with asyncio.timeout(NEWS_S):
                    await self._hidden[name].ended.wait()

    async def _create_now(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        pulsar_name = self._pulsar_name(name)
        configured = config_properties(configs, messages_only=writes_messages(configs))
        properties = {TOPIC_ID: str(uuid.uuid4()), **configured}
        change = policy_change({}, configured, self._defaults)
        pending = {} if change is None else change.properties
        try:
            await create_partitioned(self._admin, pulsar_name, partitions, properties | pending)
        except AdminError as error:
            if error.conflict:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
            self._policies.finish_later(pulsar_name, pending)  # possibly only the answer was lost
            raise
        topic = self._remember(self._new_topic(name, partitions, properties))
        if change is not None:
            try:
                await self._policies.finish(topic.pulsar_name, change)
            except KafkaError:
                await self._uncreate(topic)
                raise
        return topic

    async def _uncreate(self, topic: Topic) -> None:
        """Delete a topic whose configurations Pulsar has refused. If others have written to it already, it stays."""
        self._forget(topic.name)
        try:
            if await self._is_empty(topic):
                await self._delete(topic, force=False)
        except PulsarError as error:
            log.warning("cannot delete a topic without its configurations", topic=topic.name, error=str(error))
            with suppress(PulsarError):
                await self._admin.topics.create_missed_partitions(topic.pulsar_name)

    async def alter_configs(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool,
        requested: RequestedTopics | None = None, when_hidden: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Set a topic's configurations to the result of ``change``, which gets the present ones. Raises KafkaError.

        ``requested`` are the topics of a request that may name very many. ``when_hidden`` stops those who may write to
        the topic as it was before, while nobody finds it.
        """  # fmt: skip
        work = self._alter_configs(
            name, change, validate_only=validate_only, requested=requested, when_hidden=when_hidden
        )
        await self.change("alter topic", work)

    async def _alter_configs(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool,
        requested: RequestedTopics | None, when_hidden: Callable[[], Awaitable[None]] | None,
    ) -> None:  # fmt: skip
        async with nullcontext() if validate_only else self._turn_if_kept(name):
            topic = await (requested or self).get(name, fresh=True)
            configs = check_configs(change({} if topic is None else topic.configs))
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            altered = await self._altered(topic, configs)
            if validate_only:
                return
            if altered.messages_only and not topic.messages_only and when_hidden is not None:
                await self._alter_empty(topic, configs, when_hidden)
            else:
                await self._alter(topic, altered)

    async def _altered(self, topic: Topic, configs: Mapping[str, str]) -> Topic:
        """Raises KafkaError INVALID_CONFIG."""
        altered = replace(topic, configs=configs, messages_only=await self._stays_messages_only(topic, configs))
        if topic.has_compaction_keys and topic.compacts and not altered.compacts:
            altered = replace(altered, compaction_ends=topic.compaction_ends + 1)
        if altered.compacts and not topic.compacts and not altered.messages_only:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Topic '{topic.name}' has records that were not written for compaction, and Pulsar cannot compact "
                "them: copy them to a topic that is created with cleanup.policy=compact.",
            )
        return altered

    async def _alter_empty(
        self, topic: Topic, configs: Mapping[str, str], when_hidden: Callable[[], Awaitable[None]]
    ) -> None:
        """The first records may be on their way in the old format, with which Pulsar could never compact the topic. So
        nobody finds it until those who write have stopped, and the new format is stored: then it is read anew."""
        self.hide(topic.name)
        try:
            await when_hidden()
            await self._alter(topic, await self._altered(topic, configs))
        finally:
            self.show(topic.name)
            self._outdate(topic.name)

    async def begin_transactions(self, name: str) -> None:
        """Called before a topic's first transactional batch: from now on, Pulsar does not compact it automatically.

        Raises KafkaError and PulsarError.
        """
        await self.change("begin transactions", self._begin_transactions(name))

    async def _begin_transactions(self, name: str) -> None:
        async with self._turn_if_kept(name):
            topic = await self.get(name, fresh=True)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not topic.has_transactions:
                can_compact = topic.compacts and topic.messages_only
                await self._alter(topic, replace(topic, has_transactions=True, has_compaction_keys=can_compact))
                if topic.compacts:
                    await asyncio.sleep(POLICY_REACHES_ALL_S)

    async def _alter(self, topic: Topic, altered: Topic) -> None:
        """One request sets all new values and the pending change; each removed property needs a separate request."""
        before, after = topic.config_properties, altered.config_properties
        change = policy_change(before, after, self._defaults)
        pending = {} if change is None else change.properties
        admin, gone = self._admin.topics, before.keys() - after.keys()
        try:
            if written := dict(after.items() - before.items()) | pending:
                await admin.put_properties(topic.pulsar_name, written)
            for key in gone:
                await admin.remove_property(topic.pulsar_name, key)
            if pending and gone:  # another gateway may have finished the change in between
                await admin.put_properties(topic.pulsar_name, pending)
        except PulsarError:
            self._policies.finish_later(topic.pulsar_name, pending)
            raise
        self._replace(replace(altered, loaded_at=time.monotonic()))
        if change is not None:
            try:
                await self._policies.finish(topic.pulsar_name, change)
            except KafkaError:
                self._replace(replace(topic, loaded_at=float("-inf")))
                raise

    async def _stays_messages_only(self, topic: Topic, configs: Mapping[str, str]) -> bool:
        """Whether Pulsar will be able to compact the topic; this includes topics to which nothing was ever written."""
        if not writes_messages(configs):
            return False
        return topic.messages_only or await self._is_empty(topic)

    async def _is_empty(self, topic: Topic) -> bool:
        """Whether nothing was ever written to the topic."""
        for partition in range(topic.partitions):
            index = (await self._admin.topics.managed_ledger_properties(topic.pulsar_topic(partition))).get("index")
            stats = await self._admin.topics.internal_stats(topic.pulsar_topic(partition))
            if index not in {None, "-1"} or any(ledger.entries > 0 for ledger in stats.ledgers):
                return False
        return True

    async def delete(self, topic: Topic, when_hidden: Callable[[], Awaitable[None]] | None = None) -> None:
        """Delete the topic. Pulsar deletes the partitions first, and needs time: clients do not see the topic then.

        ``when_hidden`` waits for those who have looked up the topic before.
        """
        self._deleting.add(topic.name)
        self._forget(topic.name)
        try:
            async with self.turn(topic.name):
                if when_hidden is not None:
                    await when_hidden()
                # While it waited, others may have deleted the topic, and created another one.
                if await self._is_there(topic):
                    self._deleting.add(topic.name)  # a deletion before this one has failed, and shown it again
                    self._forget(topic.name)
                    await self._delete(topic, force=True)
        finally:
            self._deleting.discard(topic.name)
            self._outdate(topic.name)

    async def _is_there(self, topic: Topic) -> bool:
        found = await self.read(topic.name)
        return found is not None and found.topic_id == topic.topic_id

    async def _delete(self, topic: Topic, *, force: bool) -> None:
        topics = self._admin.topics
        delete = topics.delete_partitioned if topic.partitioned else topics.delete
        try:
            await retried(
                lambda: delete(topic.pulsar_name, force=force),
                lambda error: force and isinstance(error, AdminError) and (error.in_use or error.between_owners),
                Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), CHANGE_TIMEOUT_S / 2,
            )  # fmt: skip
        except AdminError as error:
            if force and error.in_use:
                raise ServiceNotReadyError(str(error)) from error
            if not error.not_found:
                raise

    async def add_partitions(
        self, topic: Topic, count: int, when_added: Callable[[Topic], Awaitable[None]] | None = None
    ) -> None:
        """``when_added`` gets the topic as it was before: others may have changed it meanwhile. Nobody changes it until
        that is done."""
        if not topic.partitioned:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' is a non-partitioned topic of Pulsar"
            )
        async with self._turn_if_kept(topic.name):
            before = await self._smaller(topic, count)
            try:
                await self._admin.topics.update_partitions(topic.pulsar_name, count)
            except AdminError as error:
                if error.conflict:
                    before = await self._add_to_others(topic, count)
                elif not await self._has(topic, count):
                    raise
            await self.get(topic.name, fresh=True)
            if when_added is not None:
                await when_added(before)

    async def _has(self, topic: Topic, count: int) -> bool:
        """Pulsar adds partitions first, and may then fail to add subscriptions to them."""
        found = await self.get(topic.name, fresh=True)
        return found is not None and (found.topic_id, found.partitions) == (topic.topic_id, count)

    async def _add_to_others(self, topic: Topic, count: int) -> Topic:
        """There are more partitions than the topic has: another gateway is adding them, or one was interrupted."""
        await asyncio.sleep(OTHERS_ARE_DONE_S)
        before = await self._smaller(topic, count)
        await self._admin.topics.update_partitions(topic.pulsar_name, count, force=True)
        return before

    async def _smaller(self, topic: Topic, count: int) -> Topic:
        """The topic as it is now, if it still has fewer partitions. Raises KafkaError otherwise."""
        found = await self.get(topic.name, fresh=True)
        if found is None or found.topic_id != topic.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.partitions >= count:
            text = f"Topic already has {found.partitions} partition(s)."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        return found

    async def change(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        """A change that has begun is finished, even if the client has disconnected or no longer waits."""
        ended = to_the_end(what, work, refusal=KafkaError)
        return await self._in_time(ended, f"{what}: Pulsar is not done yet", CHANGE_TIMEOUT_S)
