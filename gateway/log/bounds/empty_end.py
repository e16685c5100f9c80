"""The end of a log that holds no entry: Pulsar keeps the last index beside the ledgers."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin.client import AdminClient


async def empty_end(admin: AdminClient, topic: str) -> int:
    """The end of a log that holds no entry, except perhaps compacted ones. Raises PulsarError.

    Pulsar keeps the last index beside the ledgers.
    """
    return end_before_open_ledger(await admin.topics.managed_ledger_properties(topic))


def end_before_open_ledger(properties: Mapping[str, str]) -> int:
    """The end of such a log from the properties of the managed ledger."""
    return int(properties.get("index", "-1")) + 1
