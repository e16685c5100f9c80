"""Administrators' changes are logged, without passwords and their hashes."""

from __future__ import annotations

import asyncio
import math
import tracemalloc
from typing import cast

import pytest
import structlog

from gateway.errors import KafkaError
from gateway.pulsar.errors import RequestTimeoutError
from gateway.security import security as module
from gateway.security.acls import Acl, Requester
from gateway.security.records import (
    MAX_NAME_CHARACTERS,
    QuotaKey,
    Record,
    ScramKey,
    acl_record,
    quota_record,
    scram_record,
)
from gateway.security.security import MAX_LOGGED, Security
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.sasl.scram import ScramMechanism, credential_of
from tests.unit.event_loop import let_callbacks_run

ROOT = Requester("User:root", "192.0.2.7")
ACL = Acl(
    ResourceType.TOPIC, PatternType.PREFIXED, "orders", "User:alice", "*", AclOperation.READ, Permission.ALLOW
)
CREDENTIAL = credential_of(ScramMechanism.SCRAM_SHA_256, "canary-password", b"salt-salt-salt", 4_096)


class FakeLog:
    def __init__(self, state: SecurityState, error: Exception | None = None) -> None:
        self.state, self.error = state, error

    async def append(self, records: list[Record]) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0)
        for record in records:
            self.state.apply(record)


def security(error: Exception | None = None, max_bytes: float = math.inf) -> Security:
    state = SecurityState()
    return Security(state, cast(SecurityLog, FakeLog(state, error)), None, max_bytes)


async def test_a_change_has_a_line() -> None:
    alice = ScramKey(ScramMechanism.SCRAM_SHA_256, "alice")
    changes = [
        acl_record(ACL, present=True), scram_record(alice, CREDENTIAL), scram_record(alice, None),
        quota_record(QuotaKey(frozenset({("user", "alice"), ("client-id", None)}), "producer_byte_rate"), 1024.0),
        quota_record(QuotaKey(frozenset({("ip", None)}), "connection_creation_rate"), None),
    ]  # fmt: skip
    with structlog.testing.capture_logs() as lines:
        await security().change(changes, ROOT)
    (line,) = lines
    assert line == {
        "event": "security changed", "log_level": "info", "principal": "User:root", "address": "192.0.2.7", "count": 5,
        "unnamed": 0,
        "set": [
            "ACL ALLOW READ TOPIC PREFIXED orders User:alice *", "SCRAM-SHA-256 alice",
            "quota producer_byte_rate client-id <default> user alice 1024",
        ],
        "removed": ["SCRAM-SHA-256 alice", "quota connection_creation_rate ip <default>"],
    }  # fmt: skip
    secrets = (CREDENTIAL.salt, CREDENTIAL.stored_key, CREDENTIAL.server_key)
    assert not any(secret.hex() in str(line) for secret in secrets)


async def test_the_line_of_a_large_change_is_bounded() -> None:
    """Names may have 32 KB."""
    name = "n" * 32_000
    acl = ACL._replace(name=name, principal=f"User:{name}", host=name)
    user, entity = ScramKey(ScramMechanism.SCRAM_SHA_256, name), frozenset({("user", name), ("client-id", name)})
    records = [
        acl_record(acl, present=True), scram_record(user, None),
        quota_record(QuotaKey(entity, "consumer_byte_rate"), 1.0),
        *(acl_record(ACL._replace(name=f"{name}{number}"), present=True) for number in range(MAX_LOGGED)),
    ]  # fmt: skip
    with structlog.testing.capture_logs() as lines:
        await security().change(records, ROOT)
    (line,) = lines
    assert (line["count"], line["unnamed"], len(line["set"])) == (MAX_LOGGED + 3, 3, MAX_LOGGED - 1)
    assert max(map(len, [*line["set"], *line["removed"]])) < 3 * MAX_NAME_CHARACTERS + 100


async def test_a_change_with_unknown_result_is_logged_as_such() -> None:
    with structlog.testing.capture_logs() as lines, pytest.raises(RequestTimeoutError):
        await security(RequestTimeoutError("late")).change([acl_record(ACL, present=False)], ROOT)
    assert [line["event"] for line in lines] == ["security change with unknown result"]


async def test_a_large_change_has_a_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGGED", 3)
    changes = [acl_record(ACL._replace(name=str(number)), present=True) for number in range(10)]
    with structlog.testing.capture_logs() as lines:
        await security().change(changes, ROOT)
        await security().change([], ROOT)
    (line,) = lines
    assert line["count"] == 10 and len(line["set"]) == 3


QUOTA = QuotaKey(frozenset({("user", "alice")}), "producer_byte_rate")
SCRAM = ScramKey(ScramMechanism.SCRAM_SHA_256, "alice")
SETTINGS = {
    "ACLs": [acl_record(ACL._replace(name=f"{n:04}"), present=True) for n in range(200)],
    "users": [scram_record(SCRAM._replace(user=f"{n:04}"), CREDENTIAL) for n in range(200)],
    "quotas": [quota_record(QUOTA._replace(entity=frozenset({("user", f"{n:04}")})), 1.0) for n in range(200)],
}


@pytest.mark.parametrize("kind", SETTINGS)
async def test_an_administrator_cannot_fill_the_memory_of_all_gateways(kind: str) -> None:
    settings, own = SETTINGS[kind], security(max_bytes=100_000)
    results = await asyncio.gather(*(own.change([each], ROOT) for each in settings), return_exceptions=True)
    refused = [each for each in results if isinstance(each, KafkaError)]
    assert {each.code for each in refused} == {ErrorCode.POLICY_VIOLATION}
    assert 50_000 < own.state.memory_bytes <= 100_000
    added = [setting for setting, result in zip(settings, results, strict=True) if result is None]
    with pytest.raises(KafkaError):
        await own.change(settings, ROOT)
    await own.change(added, ROOT)  # the same again
    await own.change([(key, None) for key, _ in added], ROOT)
    assert own.state.memory_bytes == 0
    await own.change(settings[-1:], ROOT)


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_memory_of_settings_is_about_what_is_counted(kind: str) -> None:
    state = SecurityState()
    tracemalloc.start()
    try:
        for key, value in SETTINGS[kind]:
            assert value is not None
            state.apply((bytes(bytearray(key)), bytes(bytearray(value))))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < taken_bytes / state.memory_bytes < 1.5


async def test_a_change_of_a_client_that_leaves_at_once_has_a_line() -> None:
    """What it has sent takes effect. Without a line, that could be done unseen."""

    class Written(FakeLog):
        async def append(self, records: list[Record]) -> None:
            for record in records:
                self.state.apply(record)
            await asyncio.sleep(0)  # until it is known here

    state = SecurityState()
    found = Security(state, cast(SecurityLog, Written(state)), None)
    with structlog.testing.capture_logs() as lines:
        change = asyncio.create_task(found.change([acl_record(ACL, present=True)], ROOT))
        await asyncio.sleep(0)
        change.cancel()
        await asyncio.wait([change])
        await let_callbacks_run()
    assert change.cancelled() and ACL in found.state.acls
    assert [(line["event"], line["principal"]) for line in lines] == [("security changed", "User:root")]
