"""Where a log ends that holds no entry: the last index is kept beside the ledgers."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin import AdminClient


async def empty_end(admin: AdminClient, topic: str) -> int:
    """Where the log ends if no entry is left, but perhaps compacted ones: the last index is kept beside the ledgers.

    Raises PulsarError.
    """
    return end_before_open_ledger(await admin.topics.managed_ledger_properties(topic))


def end_before_open_ledger(properties: Mapping[str, str]) -> int:
    """By the properties of the managed ledger."""
    return int(properties.get("index", "-1")) + 1
