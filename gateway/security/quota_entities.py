"""The kinds of quotas and of their entities: Kafka's QuotaConfigs and ClientQuotaEntity (KIP-13, 124, 599, 612)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from gateway.security.records import Entity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = frozenset({USER, CLIENT_ID, IP})
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"


class QuotaKind(NamedTuple):
    type_name: str
    """The quota's type in Kafka's configuration."""
    largest: float
    is_whole: bool


_LONG, _DOUBLE = QuotaKind("LONG", 2**63, True), QuotaKind("DOUBLE", float("inf"), False)
OF_CLIENTS: Mapping[str, QuotaKind] = {
    PRODUCER_BYTE_RATE: _LONG, CONSUMER_BYTE_RATE: _LONG, REQUEST_PERCENTAGE: _DOUBLE, MUTATION_RATE: _DOUBLE,
}  # fmt: skip
_OF_ADDRESSES: Mapping[str, QuotaKind] = {CONNECTION_RATE: QuotaKind("INT", 2**31 - 1, True)}
_WHOLE = 1e-6


def invalid_entity(parts: list[tuple[str, str | None]]) -> str | None:
    """Why there cannot be quotas for such an entity; None if there can."""
    if not parts:
        return "Invalid empty client quota entity"
    for kind, name in parts:
        if kind not in TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    kinds = {kind for kind, _ in parts}
    if IP in kinds and len(kinds) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = dict(parts).get(IP)
    if address is not None and not _is_address(address):
        return f"{address} is not a valid IP or resolvable host."
    return None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def invalid_quota(entity: Entity, quota: str, value: float) -> str | None:
    """Why an entity cannot have this quota; None if it can."""
    kinds = _OF_ADDRESSES if any(kind == IP for kind, _ in entity) else OF_CLIENTS
    kind = kinds.get(quota)
    if kind is None:
        return f"Invalid configuration key {quota}"
    if not value > 0:  # also true for NaN
        return f"Quota {quota} must be greater than 0"
    if value > kind.largest:
        article = "an" if kind.type_name == "INT" else "a"
        return f"Proposed value for {quota} is too large for {article} {kind.type_name}."
    if kind.is_whole and abs(value % 1.0) > _WHOLE:
        return f"{quota} cannot be a fractional value."
    return None
