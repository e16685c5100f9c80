"""Topics in the admin API: partitioned topics, policies, and the content of the managed ledger.

Topic names are full names, `persistent://tenant/namespace/name`. Every method raises AdminError.
https://pulsar.apache.org/docs/4.0.x/admin-api-topics/
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from gateway.pulsar.admin.http import AdminError, AdminHttp, Response, quoted
from gateway.pulsar.position import Position

PARTITION = "-partition-"
"""Between a topic's name and the number of a partition."""
COMPACTION_CURSOR = "__compaction"
"""The durable subscription of Pulsar's compaction."""
_BEHIND_LAST_ENTRY = "LastConfirmedEntry is"
"""Part of the broker's message, with status 500, when the entry id is beyond the ledger's last entry."""
_NO_REASON = ": Server Error"
"""What is known of a HEAD that a broker of Pulsar 4.2 refuses. Those of 4.0 write the reason into the status line."""
_QUOTA_BY_SIZE = "destination_storage"
_PARTITIONED_METADATA = "application/vnd.partitioned-topic-metadata+json"


class TopicPolicy(StrEnum):
    """Topic-level policies."""

    RETENTION = "retention"
    """{"retentionTimeInMinutes": int, "retentionSizeInMB": int}; -1 means no limit."""
    COMPACTION_THRESHOLD = "compactionThreshold"
    """Bytes of backlog that start a compaction; 0 means never."""
    MESSAGE_TTL = "messageTTL"
    """Seconds after which the broker acknowledges a message for every subscription; 0 means never."""
    REPLICATION = "replication"
    """Names of clusters, including this one."""
    BACKLOG_QUOTA = "backlogQuota"
    """{"limitSize": bytes, "policy": action for a larger backlog}; the size must be below the retention's size."""


class PartitionedTopic(NamedTuple):
    partitions: int
    """0 if the topic is not partitioned."""
    properties: dict[str, str]


class Ledger(NamedTuple):
    ledger_id: int
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InternalStats:
    """The managed ledger of a topic."""

    ledgers: tuple[Ledger, ...]
    """Oldest first; the last one is usually open."""
    last_confirmed: Position
    pending_adds: int
    """Entries that the broker is writing now."""
    entries_added: int
    """Entries that the broker has written since it loaded the topic."""
    cursors: dict[str, Any]
    """The cursors by subscription, in Pulsar's format."""
    compacted_ledger: Ledger

    def waits_at(self, subscription: str) -> Position | None:
        """Where a subscription's cursor waits for the next entry; None if it does not wait, or does not exist."""
        cursor = self.cursors.get(subscription)
        return _position(cursor["readPosition"]) if cursor is not None and cursor["waitingReadOp"] else None

    @property
    def compacted_to(self) -> Position:
        """The last entry that Pulsar's compaction has read; (-1, -1) if it never ran."""
        return _position(self.cursors.get(COMPACTION_CURSOR, {}).get("markDeletePosition", "-1:-1"))


class ManagedLedgerInfo(NamedTuple):
    """A managed ledger, as the metadata store holds it."""

    ledger_ids: frozenset[int]
    """The ledgers that are kept, including the open one."""
    cursors: frozenset[str]
    """Names of durable subscriptions; includes `__compaction` if the topic was ever compacted."""
    properties: Mapping[str, str]
    """`index` is the index of the last entry before the open ledger: a topic without entries ends there. If there was
    no entry at all, `index` is -1, or missing if the topic was never loaded."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """The admin API's information about one entry."""

    position: Position
    index: int | None
    """The broker entry index of the entry's last message."""
    num_messages: int
    marker_type: int | None = None
    """Set for an entry that a broker wrote for replication or transactions."""
    is_aborted: bool = False
    """It belongs to a transaction of a native producer that was aborted: readers never get it."""
    is_held_back: bool = False
    """An open transaction of a native producer begins at it, or before it: readers get it when that has ended."""


class StoredContent(NamedTuple):
    """The content of one entry, decompressed."""

    entry: StoredEntry
    producer_name: str
    sequence_id: int
    properties: Mapping[str, str]
    payload: bytes


def split_topic(topic: str) -> tuple[str, str]:
    """Domain and namespace-qualified name of a full topic name, percent-encoded for the API's paths."""
    domain, separator, name = topic.partition("://")
    parts = name.split("/", 2)
    if not separator or len(parts) != 3 or not all(parts):
        raise ValueError(f"not a full topic name: {topic!r}")
    return domain, "/".join(quoted(part) for part in parts)


def topic_path(topic: str, *suffix: str) -> str:
    return "/".join((*split_topic(topic), *suffix))


class TopicsAdmin:
    """Partitioned and unpartitioned topics."""

    def __init__(self, http: AdminHttp, max_connections: int) -> None:
        self._http = http
        self._entry_requests = asyncio.Semaphore(max(1, max_connections // 2))
        """Brokers never answer for some entries, and anyone may write very many of these: other requests go on."""

    # Partitioned topics.

    async def list_partitioned(self, namespace: str) -> list[str]:
        """Full names of the partitioned topics of `tenant/namespace`."""
        names: list[str] = await self._http.get_json(f"persistent/{_namespace(namespace)}/partitioned")
        return names

    async def list_topics(self, namespace: str) -> list[str]:
        """Full names of the stored topics: unpartitioned topics, and each single partition."""
        names: list[str] = await self._http.get_json(f"persistent/{_namespace(namespace)}")
        return names

    async def create_partitioned(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        """Create the topic and its partitions. AdminError has status 409 if the topic exists."""
        body = {"partitions": partitions, "properties": dict(properties)}
        path = topic_path(topic, "partitions")
        await self._http.request("PUT", path, body=body, content_type=_PARTITIONED_METADATA)

    async def update_partitions(self, topic: str, partitions: int, *, force: bool = False) -> None:
        """Increase the partition count. AdminError has status 409 if there are partitions above the present count, for
        which `force` is needed."""
        params = {"force": _bool(force)}
        await self._http.request("POST", topic_path(topic, "partitions"), body=partitions, params=params)

    async def delete_partitioned(self, topic: str, *, force: bool = False) -> None:
        """Delete the topic with its partitions and data; `force` also disconnects its producers and consumers."""
        await self._http.request("DELETE", topic_path(topic, "partitions"), params={"force": _bool(force)})

    async def partitioned(self, topic: str) -> PartitionedTopic:
        """Partition count and properties. Does not create the topic; AdminError has status 404 if it does not exist."""
        path = topic_path(topic, "partitions")
        found = await self._http.get_json(path, {"checkAllowAutoCreation": "false"})
        return PartitionedTopic(found["partitions"], found.get("properties") or {})

    async def create_missed_partitions(self, topic: str) -> None:
        """Create the missing partitions of the topic."""
        await self._http.request("POST", topic_path(topic, "createMissedPartitions"))

    async def create(self, topic: str, properties: Mapping[str, str] | None = None) -> None:
        """Create an unpartitioned topic. AdminError has status 409 if the topic exists."""
        await self._http.request("PUT", topic_path(topic), body=None if properties is None else dict(properties))

    async def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete an unpartitioned topic."""
        await self._http.request("DELETE", topic_path(topic), params={"force": _bool(force)})

    # Properties and policies.

    async def properties(self, topic: str) -> dict[str, str]:
        return await self._http.get_json(topic_path(topic, "properties")) or {}

    async def put_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Set these properties; the others stay."""
        await self._http.request("PUT", topic_path(topic, "properties"), body=dict(properties))

    async def remove_property(self, topic: str, key: str) -> None:
        await self._http.request("DELETE", topic_path(topic, "properties"), params={"key": key})

    async def policy(self, topic: str, policy: TopicPolicy, *, applied: bool = False) -> Any:
        """A topic-level policy, None if not set; `applied` falls back to the namespace's and the broker's policies."""
        if policy is TopicPolicy.BACKLOG_QUOTA:  # a topic has a quota by size and one by age
            found = await self._http.get_json(topic_path(topic, "backlogQuotaMap"), {"applied": _bool(applied)})
            return (found or {}).get(_QUOTA_BY_SIZE)
        return await self._http.get_json(topic_path(topic, policy), {"applied": _bool(applied)})

    async def set_policy(self, topic: str, policy: TopicPolicy, value: object) -> None:
        if policy is TopicPolicy.MESSAGE_TTL:  # the only policy without a JSON body
            await self._http.request("POST", topic_path(topic, policy), params={policy: str(value)})
        else:
            await self._http.request("POST", topic_path(topic, policy), body=value)

    async def remove_policy(self, topic: str, policy: TopicPolicy) -> None:
        await self._http.request("DELETE", topic_path(topic, policy))

    # Stored data.

    async def stats(self, topic: str) -> dict[str, Any]:
        """Publishers, subscriptions and rates, in Pulsar's format."""
        found: dict[str, Any] = await self._http.get_json(topic_path(topic, "stats"))
        return found

    async def partition_sizes(self, topic: str) -> dict[int, int]:
        """Stored bytes of each existing partition of a partitioned topic, with one request.

        The broker leaves out partitions that do not exist. If none exists, it lists the topic itself.
        """
        path = topic_path(topic, "partitioned-stats")
        options = {"perPartition": "true", "excludePublishers": "true", "excludeConsumers": "true"}
        found = await self._http.get_json(path, options)
        rows = ((name.rpartition(PARTITION), stats) for name, stats in found["partitions"].items())
        return {int(number): stats["storageSize"] for (_, mark, number), stats in rows if mark}

    async def internal_stats(self, topic: str) -> InternalStats:
        """Ledgers and cursors. Loads the topic."""
        found = await self._http.get_json(topic_path(topic, "internalStats"))
        ledgers = [_ledger(ledger) for ledger in found["ledgers"]]
        if ledgers and not ledgers[-1].entries:  # Pulsar lists the last ledger as empty until it is closed
            ledgers[-1] = Ledger(ledgers[-1].ledger_id, found["currentLedgerEntries"], found["currentLedgerSize"])
        return InternalStats(
            ledgers=tuple(ledgers),
            last_confirmed=_position(found["lastConfirmedEntry"]),
            pending_adds=found["pendingAddEntriesCount"],
            entries_added=found["entriesAddedCounter"],
            cursors=found["cursors"],
            compacted_ledger=_ledger(found["compactedLedger"]),
        )

    async def managed_ledger(self, topic: str) -> ManagedLedgerInfo:
        """The managed ledger in the metadata store. Does not load the topic."""
        found = await self._http.get_json(topic_path(topic, "internal-info"))
        return ManagedLedgerInfo(
            ledger_ids=frozenset(ledger["ledgerId"] for ledger in found.get("ledgers") or ()),
            cursors=frozenset(found.get("cursors") or ()),
            properties=found.get("properties") or {},
        )

    async def managed_ledger_properties(self, topic: str) -> Mapping[str, str]:
        """The properties that the broker stores with the list of ledgers."""
        return (await self.managed_ledger(topic)).properties

    async def entry(self, topic: str, position: Position) -> StoredEntry | None:
        """Index and message count of one entry, without its payload; None if the entry does not exist."""
        found = await self._entry("HEAD", topic, position)
        return None if found is None else _stored(position, found.headers)

    async def content(self, topic: str, position: Position, *, payload: bool = True) -> StoredContent | None:
        """One entry with its content, which brokers return even while they dispatch it to no reader.

        Its payload is empty if it is not asked for.
        """
        found = await self._entry("GET" if payload else "HEAD", topic, position)
        if found is None:
            return None
        return StoredContent(
            entry=_stored(position, found.headers),
            producer_name=found.headers.get("X-Pulsar-producer-name", ""),
            sequence_id=int(found.headers.get("X-Pulsar-sequence-id", "0")) % 2**64,  # Java has no unsigned numbers
            properties=json.loads(found.headers.get("X-Pulsar-PROPERTY", "{}")),
            payload=found.body,
        )

    async def _entry(self, method: str, topic: str, position: Position) -> Response | None:
        path = topic_path(topic, "ledger", str(position.ledger_id), "entry", str(position.entry_id))
        try:
            async with self._entry_requests:
                return await self._http.request(method, path, refusals=(_BEHIND_LAST_ENTRY, _NO_REASON))
        except AdminError as error:
            if error.not_found or _BEHIND_LAST_ENTRY in error.reason:
                return None
            if method != "HEAD" or _NO_REASON not in error.reason:
                raise
        return await self._entry("GET", topic, position)  # it has a body, with the reason

    async def position_at(self, topic: str, timestamp_ms: int) -> Position:
        """The first entry published at or after a time, or the position after the last entry."""
        found = await self._http.get_json(topic_path(topic, "messageid", str(timestamp_ms)))
        return Position(found["ledgerId"], found["entryId"])

    async def trim(self, topic: str) -> None:
        """Delete closed ledgers that retention does not keep, as brokers do from time to time.

        Runs in the broker's thread that writes the topic, after all entries that the broker has received before.
        """
        await self._http.request("POST", topic_path(topic, "trim"))

    # Compaction.

    async def compact(self, topic: str) -> None:
        """Have Pulsar begin to compact a topic. Status 409 if it does so already."""
        await self._http.request("PUT", topic_path(topic, "compaction"))

    async def compaction_status(self, topic: str) -> str:
        """NOT_RUN, RUNNING, SUCCESS or ERROR."""
        found: str = (await self._http.get_json(topic_path(topic, "compaction")))["status"]
        return found

    # Subscriptions.

    async def subscriptions(self, topic: str) -> list[str]:
        names: list[str] = await self._http.get_json(topic_path(topic, "subscriptions"))
        return names

    async def create_subscription(self, topic: str, subscription: str) -> None:
        """Create it, durable, at the beginning of each partition without it. Status 409 if all partitions have it."""
        path = topic_path(topic, "subscription", quoted(subscription))
        await self._http.request("PUT", path, body={"ledgerId": -1, "entryId": -1})

    async def delete_subscription(self, topic: str, subscription: str, *, force: bool = False) -> None:
        path = topic_path(topic, "subscription", quoted(subscription))
        await self._http.request("DELETE", path, params={"force": _bool(force)})


def _stored(position: Position, headers: Mapping[str, str]) -> StoredEntry:
    index = headers.get("X-Pulsar-Broker-Entry-METADATA-index")
    marker = headers.get("X-Pulsar-marker-type")
    return StoredEntry(
        position=position,
        index=None if index is None else int(index),
        num_messages=int(headers.get("X-Pulsar-num-batch-message", "1")),
        marker_type=None if marker is None else int(marker),
        is_aborted=headers.get("X-Pulsar-txn-aborted") == "true",
        is_held_back=headers.get("X-Pulsar-txn-uncommitted") == "true",
    )


def _namespace(namespace: str) -> str:
    return "/".join(quoted(part) for part in namespace.split("/"))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _position(text: str) -> Position:
    ledger_id, entry_id = text.split(":")[:2]
    return Position(int(ledger_id), int(entry_id))


def _ledger(found: Mapping[str, int]) -> Ledger:
    return Ledger(found["ledgerId"], found["entries"], found["size"])
