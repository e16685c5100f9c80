"""Kafka topic names and their Pulsar names."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
"""In Kafka, the log of the controllers: there is no topic of this name."""
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Kafka's internal topics: clients can read them, but cannot create or write them."""
NOT_FOR_CLIENTS = INTERNAL_TOPICS | {CLUSTER_METADATA}
"""These are not created because a client uses them."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_SUFFIX = re.compile(r"-partition(?=-)")
_ESCAPED_SUFFIX = "~partition"
"""``-partition-`` has a meaning in Pulsar. ``~`` cannot occur in a Kafka name, so it maps back to exactly one name."""
_PULSAR_INTERNAL = re.compile(
    rf"__change_events|(?!{TRANSACTION_STATE}$)__transaction_.*|.*__transaction_pending_ack|__topic_config_versions.*"
)


def invalid_reason(name: str) -> str | None:
    """The reason why Kafka refuses a topic name (INVALID_TOPIC_EXCEPTION); None if the name is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if _PULSAR_INTERNAL.fullmatch(name):
        return f"'{name}' is the name of an internal topic of Pulsar"
    return None


def collision_key(name: str) -> str:
    """Kafka refuses names that differ only in '.' and '_', because their metrics would collide."""
    return name.replace(".", "_")


def to_pulsar(name: str) -> str:
    return _PARTITION_SUFFIX.sub(_ESCAPED_SUFFIX, name)


def from_pulsar(local_name: str) -> str | None:
    """The Kafka name of a Pulsar topic; None if the topic is internal or its name is not valid in Kafka."""
    name = local_name.replace(_ESCAPED_SUFFIX, "-partition")
    return name if invalid_reason(name) is None and to_pulsar(name) == local_name else None
