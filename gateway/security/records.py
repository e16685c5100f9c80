"""The records of `~security`, in JSON: what administrators set for all gateways.

A record's key names the subject, and its value is valid from then on; a record without a value deletes the subject:

    key    ["acl", resource type, pattern type, name, principal, host, operation, permission]    Kafka's codes
    value  {"version": 1}
    key    ["scram", mechanism, user]                       Kafka's code of the mechanism
    value  {"version": 1, "salt", "stored_key", "server_key": hex, "iterations"}
    key    ["quota", {entity type: name or null}, quota]    null is the default entity
    value  {"version": 1, "value": number}
    key    ["secret"]                                       of the fleet's own cluster; the first one in the log counts
    value  {"version": 1, "secret": hex}

A gateway skips kinds of records that it does not know. While a record of a known kind is unreadable, everything is
denied, because the record may be an ACL that denies.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gateway.security.acls import Acl
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.sasl.scram import ScramCredential, ScramMechanism

VERSION = 1
_ACL, _SCRAM, _QUOTA, _SECRET = "acl", "scram", "quota", "secret"
Record = tuple[bytes, bytes | None]
"""Key and value, as in a Pulsar message."""


class ScramKey(NamedTuple):
    mechanism: ScramMechanism
    user: str


MECHANISM_CODES = {ScramMechanism.SCRAM_SHA_256: 1, ScramMechanism.SCRAM_SHA_512: 2}
"""Kafka's codes of the mechanisms."""
MECHANISMS = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}


Entity = frozenset[tuple[str, str | None]]
"""Pairs of `user`, `client-id` or `ip` and a name; None is the default entity of the type."""


class QuotaKey(NamedTuple):
    entity: Entity
    quota: str


class SecretKey(NamedTuple):
    """There is one."""


Subject = Acl | ScramKey | QuotaKey | SecretKey
Value = bool | ScramCredential | float | bytes | None
"""True for an ACL; None if the subject is deleted."""


class UnreadableRecordError(Exception):
    """The record was written by a newer gateway, or is not a record."""


def acl_record(acl: Acl, *, present: bool) -> Record:
    return _key(_ACL, *acl), _value() if present else None


def scram_record(key: ScramKey, credential: ScramCredential | None) -> Record:
    encoded = _key(_SCRAM, MECHANISM_CODES[key.mechanism], key.user)
    if credential is None:
        return encoded, None
    return encoded, _value(
        salt=credential.salt.hex(), stored_key=credential.stored_key.hex(), server_key=credential.server_key.hex(),
        iterations=credential.iterations,
    )  # fmt: skip


def quota_record(key: QuotaKey, value: float | None) -> Record:
    return _key(_QUOTA, dict(key.entity), key.quota), None if value is None else _value(value=value)


def secret_record(secret: bytes) -> Record:
    return SECRET_KEY, _value(secret=secret.hex())


def _key(kind: str, *parts: object) -> bytes:
    return json.dumps([kind, *parts], sort_keys=True, separators=(",", ":")).encode()


def _value(**fields: object) -> bytes:
    return json.dumps({"version": VERSION, **fields}, sort_keys=True, separators=(",", ":")).encode()


SECRET_KEY = _key(_SECRET)
MAX_NAME_CHARACTERS = 249
"""Longer names are cut in words about a record. A topic name has at most this length; others may have 32 KB."""


def decode_record(key: bytes, value: bytes | None) -> tuple[Subject, Value] | None:
    """None for an unknown kind of record. Raises UnreadableRecordError."""
    try:
        kind, *parts = json.loads(key)
        decode = _DECODERS.get(kind)
        if decode is None:
            return None
        fields = None if value is None else json.loads(value)
        if fields is not None and fields["version"] != VERSION:
            raise UnreadableRecordError(f"version {fields['version']}")
        return decode(parts, fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UnreadableRecordError(repr(error)) from error


def denies_more(record: Record) -> bool:
    """Whether an ACL that denies is created, or one that allows is deleted."""
    key, value = record
    try:
        decoded = decode_record(key, value)
    except UnreadableRecordError:
        return True
    if decoded is None or not isinstance(decoded[0], Acl):
        return False
    return (decoded[0].permission is Permission.DENY) is (value is not None)


def described(record: Record) -> str:
    """The record in words, without salts and keys of passwords, and with the beginning of long names."""
    decoded = decode_record(*record)
    if decoded is None:
        return "a record of a newer gateway"
    subject, value = decoded
    if isinstance(subject, Acl):
        kinds = (each.name for each in (subject.permission, subject.operation, subject.resource_type, subject.pattern))
        return " ".join(["ACL", *kinds, _cut(subject.name), _cut(subject.principal), _cut(subject.host)])
    if isinstance(subject, ScramKey):
        return f"{subject.mechanism.value} {_cut(subject.user)}"
    if isinstance(subject, SecretKey):
        return "the fleet's secret"
    entity = sorted(dict(subject.entity).items())
    names = (f"{kind} {'<default>' if name is None else _cut(name)}" for kind, name in entity)
    return " ".join(["quota", subject.quota, *names, *([f"{value:g}"] if isinstance(value, float) else [])])


def _cut(name: str) -> str:
    return name[:MAX_NAME_CHARACTERS]


def _decode_acl(parts: list[Any], fields: dict[str, Any] | None) -> tuple[Subject, Value]:
    resource_type, pattern, name, principal, host, operation, permission = parts
    acl = Acl(
        ResourceType(resource_type), PatternType(pattern), _text(name), _text(principal), _text(host),
        AclOperation(operation), Permission(permission),
    )  # fmt: skip
    return acl, None if fields is None else True


def _decode_scram(parts: list[Any], fields: dict[str, Any] | None) -> tuple[Subject, Value]:
    code, user = parts
    key = ScramKey(MECHANISMS[code], _text(user))
    if fields is None:
        return key, None
    salt, stored_key, server_key = (bytes.fromhex(fields[name]) for name in ("salt", "stored_key", "server_key"))
    return key, ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))


def _decode_quota(parts: list[Any], fields: dict[str, Any] | None) -> tuple[Subject, Value]:
    entity, quota = parts
    names = frozenset((kind, None if name is None else _text(name)) for kind, name in entity.items())
    return QuotaKey(names, _text(quota)), None if fields is None else float(fields["value"])


def _decode_secret(parts: list[Any], fields: dict[str, Any] | None) -> tuple[Subject, Value]:
    return SecretKey(*parts), None if fields is None else bytes.fromhex(fields["secret"])


def _text(part: Any) -> str:
    """The part, if it can be sent to clients: JSON may have half a surrogate pair, which UTF-8 has not."""
    if not isinstance(part, str):
        raise TypeError(f"{part!r} is not a string")
    part.encode()
    return part


_DECODERS = {_ACL: _decode_acl, _SCRAM: _decode_scram, _QUOTA: _decode_quota, _SECRET: _decode_secret}
