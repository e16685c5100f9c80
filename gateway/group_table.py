"""`kafka-gateway groups`: the committed offsets of consumer groups, read from a running gateway.

The backlogs of the subscriptions that mirror the groups come from Pulsar's admin API, if it is configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError, UnknownTopicOrPartitionError
from kafka.protocol.api_message import ApiMessage
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gateway.config.gateway_config import PulsarSection
from gateway.coordination.mirror.names import subscription_name
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.topics.catalog import TopicCatalog

BOOTSTRAP_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 10_000
MAX_PARALLEL_STATS = 8
METADATA_MAX_AGE_MS = 60_000
CLASSIC = "classic"
NO_LOGIN: Mapping[str, Any] = {}


class KafkaUnreachable(Exception):
    """No Kafka server answered, or the server refused the request. The text has the reason."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="protocol.kafka.schemas"):  # type: ignore[misc, call-arg]
    """API key 69 (KIP-848), which kafka-python lacks."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="protocol.kafka.schemas"):  # type: ignore[misc, call-arg]
    """kafka-python finds this class by its name when it has sent the request."""


class _GroupsClient(KafkaAdminClient):  # type: ignore[misc]
    """An admin client that also has the API that describes groups of the consumer protocol (KIP-848)."""

    def count_consumer_members(self, group_ids: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = self._manager.run(self._count_consumer_members, group_ids)
        return found

    async def _count_consumer_members(self, group_ids: Collection[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for group_id, node_id in (await self._find_coordinator_ids(group_ids)).items():
            request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            response = await self._manager.send(request, node_id=node_id)
            counts |= {group.group_id: len(group.members) for group in response.groups if not group.error_code}
        return counts


class GroupRow(NamedTuple):
    """One partition of a group, or a group without offsets. None means unknown."""

    group: str
    state: str
    members: int | None
    partition: TopicPartition | None = None
    committed: int | None = None
    end: int | None = None
    backlog: int | None = None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def read_groups(bootstrap: str, wanted: str | None, client: Mapping[str, Any] = NO_LOGIN) -> list[GroupRow]:
    """Rows of one or all groups, by group, topic and partition. `client` has arguments for kafka-python's clients.

    Raises KafkaUnreachable.
    """
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # kafka-python writes each failed attempt to stderr.
    try:
        return _read_groups(bootstrap, wanted, client)
    except (KafkaError, OSError, ValueError) as error:
        raise KafkaUnreachable(f"Kafka at {bootstrap}: {error or type(error).__name__}") from error


def _read_groups(bootstrap: str, wanted: str | None, client: Mapping[str, Any]) -> list[GroupRow]:
    admin = _GroupsClient(
        bootstrap_servers=bootstrap, client_id="kafka-gateway-groups", request_timeout_ms=REQUEST_TIMEOUT_MS,
        bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS, **client,
    )  # fmt: skip
    try:
        listed = {row["group_id"]: row for row in admin.list_groups() if wanted in {None, row["group_id"]}}
        members = _member_counts(admin, listed)
        offsets = admin.list_group_offsets(list(listed)) if listed else {}
        ends = _ends(admin, {partition for found in offsets.values() for partition in found})
    finally:
        admin.close()
    rows = []
    for group, row in sorted(listed.items()):
        state = row.get("group_state", "")
        rows += _rows(GroupRow(group, state, members.get(group)), offsets.get(group, {}), ends)
    return rows


def _member_counts(admin: _GroupsClient, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    classic = [group for group, row in listed.items() if row.get("group_type", CLASSIC) in {CLASSIC, ""}]
    described = admin.describe_groups(classic) if classic else {}
    counts = {group: len(found["members"]) for group, found in described.items()}
    return counts | admin.count_consumer_members([group for group in listed if group not in counts])


def _ends(admin: KafkaAdminClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
    try:
        return dict(admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))) if partitions else {}
    except UnknownTopicOrPartitionError:  # A topic was deleted, but a group still has offsets in it.
        if len(partitions) == 1:
            return {}
        each = [_ends(admin, [partition]) for partition in partitions]
        return {partition: end for found in each for partition, end in found.items()}


def _rows(group: GroupRow, offsets: Mapping[TopicPartition, Any], ends: Mapping[TopicPartition, Any]) -> list[GroupRow]:
    if not offsets:
        return [group]
    return [
        group._replace(
            partition=partition,
            committed=offsets[partition].offset,
            end=ends[partition].offset if partition in ends else None,
        )
        for partition in sorted(offsets)
    ]


async def with_backlogs(rows: Iterable[GroupRow], settings: PulsarSection) -> list[GroupRow]:
    """The rows with the backlog in Pulsar, in entries. Raises PulsarError if Pulsar cannot be reached."""
    admin = AdminClient(settings)
    topics = TopicCatalog(
        admin, settings.full_namespace, METADATA_MAX_AGE_MS, system_namespace=settings.full_system_namespace
    )
    slots = asyncio.Semaphore(MAX_PARALLEL_STATS)
    rows = list(rows)

    async def read(topic_name: str, partition: int) -> Mapping[str, Any]:
        async with slots:
            topic = await topics.get(topic_name)
            if topic is None:
                return {}
            try:
                stats = await admin.topics.stats(topic.pulsar_topic(partition))
            except AdminError as error:
                if not error.not_found:
                    raise
                return {}
            return stats["subscriptions"]  # type: ignore[no-any-return]

    partitions = {row.partition for row in rows if row.partition is not None}
    try:
        read_all = asyncio.gather(*(read(*partition) for partition in partitions))
        subscriptions = dict(zip(partitions, await read_all, strict=True))
    finally:
        await admin.close()
    return [row._replace(backlog=_backlog(row, subscriptions)) for row in rows]


def _backlog(row: GroupRow, subscriptions: Mapping[TopicPartition, Mapping[str, Any]]) -> int | None:
    if row.partition is None:
        return None
    backlog: int | None = subscriptions[row.partition].get(subscription_name(row.group), {}).get("msgBacklog")
    return backlog


def render(rows: Iterable[GroupRow], *, backlogs: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("GROUP", overflow="fold")
    table.add_column("STATE", no_wrap=True)
    table.add_column("MEMBERS", justify="right", no_wrap=True)
    table.add_column("TOPIC", overflow="fold")
    for title in ("PART", "COMMITTED", "END", "LAG", "BACKLOG")[: 5 if backlogs else 4]:
        table.add_column(title, justify="right", no_wrap=True)
    if backlogs:
        table.caption = "LAG counts records, BACKLOG the entries that the group's subscription in Pulsar has not read."
    group = None
    for row in rows:
        head = (row.group, row.state, row.members) if row.group != group else ("", "", "")
        group = row.group
        cells = (*head, *(row.partition or (None, None)), row.committed, row.end, row.lag, row.backlog)
        table.add_row(*map(_cell, cells[: len(table.columns)]))
    return table


def _cell(value: object) -> Text:
    """Names come from clients: they are not parsed as markup, and control characters are escaped."""
    text = "-" if value is None else str(value)
    return Text("".join(each if each.isprintable() else ascii(each)[1:-1] for each in text))
