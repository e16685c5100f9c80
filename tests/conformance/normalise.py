"""Removes from a response what two correct servers may answer differently, before the comparison."""

from __future__ import annotations

import re
import uuid
from typing import Any

from tests.conformance.records import describe

ABSENT = "<absent>"
NO_ID = uuid.UUID(int=0)
DROPPED = {"throttle_time_ms"}
NODE_IDS = {"node_id", "broker_id", "leader_id", "controller_id"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas"}
PLACES = {"host", "port", "cluster_id"}
TEXTS = {"error_message", "batch_index_error_message"}
OFFSETS = {
    "base_offset",
    "offset",
    "high_watermark",
    "last_stable_offset",
    "first_offset",
    "current_txn_start_offset",
}
OF_A_TRANSACTION = {"coordinator_epoch", "transaction_start_time_ms", "last_timestamp"}
_UUID_TEXT = re.compile("-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))
"""The end of member ids."""
SORT_KEYS = (
    "first_offset",
    "name",
    "topic",
    "topic_id",
    "index",
    "partition_index",
    "api_key",
    "key",
    "group_id",
    "member_id",
)


class Names:
    """One side's own names: topic prefix, topic ids, and the offset that the case calls 0."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.topic_ids: dict[uuid.UUID, str] = {}
        self.producer_ids: dict[int, str] = {}
        self.start_offset = 0
        self.hide_timestamps = False


def normalise(value: Any, names: Names, field: str = "") -> Any:
    """A copy of a response in which placeholders replace the server's own values."""
    if isinstance(value, dict):
        plain = {key: normalise(item, names, key) for key, item in value.items() if key not in DROPPED}
        if plain.get("error_code") and "records" in plain:
            plain["records"] = plain["records"] or describe(b"")  # beside an error, null and empty mean the same
        return plain
    if field == "aborted_transactions" and not value:
        return []  # null and empty mean the same to every client; Kafka lists them in the order of their ends
    if field in NODE_LISTS:
        return ["<node>"] if value else []
    if isinstance(value, list):
        return sorted((normalise(item, names, field) for item in value), key=_sort_key)
    return _scalar(value, names, field)


def _scalar(value: Any, names: Names, field: str) -> Any:
    if isinstance(value, uuid.UUID):
        return "<no id>" if value == NO_ID else names.topic_ids.get(value, "<unknown id>")
    if field == "records":
        return _relative(describe(value), names)
    if isinstance(value, str):
        plain = _UUID_TEXT.sub("<uuid>", value.replace(names.prefix, "<run>"))
        return value and "<text>" if field in TEXTS else _place(plain, field)
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value, names, field)
    return value


def _number(value: int, names: Names, field: str) -> Any:
    if field in OFFSETS:
        return value - names.start_offset if value >= 0 else value
    if value >= 0 and field in NODE_IDS | PLACES:
        return f"<{field}>"
    if value >= 0 and field == "producer_id":
        return names.producer_ids.get(value, "<producer_id>")
    if value >= 0 and field == "log_append_time_ms" and names.hide_timestamps:
        return f"<{field}>"
    if value >= 0 and field in OF_A_TRANSACTION:
        return f"<{field}>"
    return "<session>" if field == "session_id" and value else value


def _place(value: str, field: str) -> str:
    return f"<{field}>" if field in PLACES and value else value


def _relative(described: Any, names: Names) -> Any:
    start = names.start_offset
    for item in described["batches"] if described else ():
        for key in ("base offset", "last offset"):
            if key in item:
                item[key] -= start
        if "producer" in item:
            item["producer"] = (names.producer_ids.get(item["producer"][0], item["producer"][0]), *item["producer"][1:])
        item["records"] = [(offset - start, *rest) for offset, *rest in item.get("records", ())]
        if names.hide_timestamps:
            item["max timestamp"] = "<time>"
            item["records"] = [(offset, "<time>", *rest) for offset, _, *rest in item["records"]]
    return described


def _sort_key(item: Any) -> str:
    if isinstance(item, dict):
        return repr([item[key] for key in SORT_KEYS if key in item])
    return repr(item)


def _says_more(path: str, kafka: Any, gateway: Any) -> bool:
    """A text where Kafka has none is no difference."""
    return path.endswith("error_message") and not kafka and gateway == "<text>"


def differences(kafka: Any, gateway: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Path → (Kafka's value, the gateway's) for every part that differs.

    A path looks like "[0].Fetch.responses[0].partitions[0].error_code". Lists of different lengths differ as a whole.
    """
    if isinstance(kafka, dict) and isinstance(gateway, dict) and kafka.keys() & gateway.keys():
        pairs = [
            (f"{path}.{key}" if path else key, kafka.get(key, ABSENT), gateway.get(key, ABSENT))
            for key in sorted(kafka.keys() | gateway.keys())
        ]
    elif isinstance(kafka, list) and isinstance(gateway, list) and len(kafka) == len(gateway):
        pairs = [(f"{path}[{n}]", *both) for n, both in enumerate(zip(kafka, gateway, strict=True))]
    else:
        return {} if kafka == gateway or _says_more(path, kafka, gateway) else {path: (kafka, gateway)}
    found: dict[str, tuple[Any, Any]] = {}
    for inner, left, right in pairs:
        found |= differences(left, right, inner)
    return found
