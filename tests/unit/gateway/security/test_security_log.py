"""The security log of one gateway, on a topic in memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.background import TaskGroup
from gateway.config.gateway_config import PulsarSection
from gateway.config.security import AuthorizationSection
from gateway.coordination.partition.trimming_cursor import TakenSnapshot
from gateway.handlers.security import alter_client_quotas, alter_user_scram_credentials, create_acls, delete_acls
from gateway.pulsar.errors import ConnectionLostError
from gateway.security import security_log as module
from gateway.security.records import (
    QuotaKey,
    ScramKey,
    acl_record,
    quota_record,
    scram_record,
)
from gateway.security.security import new_security
from gateway.security.snapshots import encode_snapshot
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from protocol.sasl.scram import MIN_ITERATIONS, ScramMechanism, credential_of
from tests.unit.gateway.security.security_log_scene import (
    ACL,
    FakeTopic,
    Scene,
    until_reading,
)


async def test_a_change_is_in_effect_when_the_log_was_loaded_again(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute without Pulsar: the change that was written meanwhile is read with everything else."""
    monkeypatch.setattr(scene.log, "_has_missed_entries", AsyncMock(return_value=True))
    await scene.start()
    lost, topic.reader = topic.reader, None
    topic.may_load.clear()
    lost.on_reader_closed(ConnectionLostError("lost"))
    change = asyncio.create_task(scene.log.append([acl_record(ACL, present=True)]))
    await asyncio.sleep(0.01)
    topic.may_load.set()
    await until_reading(topic)
    assert ACL in scene.state.acls
    async with asyncio.timeout(1):
        await change


async def test_other_clusters_have_their_turn_while_very_many_settings_are_loaded(
    scene: Scene, topic: FakeTopic
) -> None:
    """Of a cluster that is opened for its first client."""
    count = 10_000
    for first in range(0, count, 500):
        topic.write(*(acl_record(ACL._replace(name=str(first + number)), present=True) for number in range(500)))
    scene.log.start()
    seen = [0]
    while not scene.log.loaded.is_set():
        await asyncio.sleep(0)
        seen.append(len(scene.state.acls))
    assert seen[-1] == count
    assert max(after - before for before, after in pairwise(seen)) < count / 4


@pytest.mark.parametrize("kind", ["acl", "pulsar"])
async def test_it_is_read_once_though_it_is_started_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose rights are not loaded in time is started again."""
    started: list[str] = []
    monkeypatch.setattr(TaskGroup, "keep_running", lambda _, name, run: started.append(name))
    admin: Any = SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=AsyncMock(return_value={})))
    config = AuthorizationSection.model_validate({"authorizer": kind})
    found = new_security(cast(Any, None), admin, PulsarSection(), config, 1_000_000, lambda: False)
    for _ in range(2):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await found.start(with_users=True)
    assert started and len({*started}) == len(started)


async def test_a_gateway_that_was_suspended_for_days_keeps_no_revoked_right(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that revoked it is deleted. The lost connection is noticed when the gateway has run for a while."""
    now_ms = 0
    monkeypatch.setattr(module, "lease_now_ms", lambda: now_ms)
    monkeypatch.setattr(module, "SNAPSHOT_CHECK_S", 0)
    topic.write(acl_record(ACL, present=True))
    await scene.start()
    await asyncio.sleep(0.01)
    assert ACL in scene.state.acls and topic.opened is not None
    now_ms += 4 * 24 * 3_600 * 1_000
    topic.opened.is_lost = True
    topic.write(acl_record(ACL, present=False))
    snapshot = TakenSnapshot(topic.last, 0, 0)
    topic.write(*encode_snapshot(snapshot.position, ()))
    del topic.entries[:2]
    scene.log._trimming_cursor = cast(Any, SimpleNamespace(find=AsyncMock(return_value=snapshot)))
    await asyncio.sleep(0.01)
    lost, topic.reader = topic.reader, None
    lost.on_reader_closed(ConnectionLostError("lost"))
    await until_reading(topic)
    assert ACL not in scene.state.acls


CREATION = CreateAclsRequest(
    creations=[
        CreateAclsRequest.AclCreation(
            resource_type=ACL.resource_type, resource_name=ACL.name, resource_pattern_type=ACL.pattern,
            principal=ACL.principal, host=ACL.host, operation=ACL.operation, permission_type=ACL.permission,
        )
    ]
)  # fmt: skip
DELETION = DeleteAclsRequest(
    filters=[
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ACL.resource_type, resource_name_filter=ACL.name, pattern_type_filter=ACL.pattern,
            principal_filter=ACL.principal, host_filter=ACL.host, operation=ACL.operation,
            permission_type=ACL.permission,
        )
    ]
)  # fmt: skip


async def test_an_acl_that_was_just_deleted_at_another_gateway_is_created(scene: Scene, topic: FakeTopic) -> None:
    """A client sends each request to any gateway: this one may not have read yet what another one has answered."""
    topic.write(acl_record(ACL, present=True))
    await scene.start()
    topic.write(acl_record(ACL, present=False))
    response = await scene.ask(create_acls.handle, CREATION)
    assert response.results[0].error_code == ErrorCode.NONE and ACL in scene.state.acls


async def test_an_acl_that_was_just_created_at_another_gateway_is_deleted(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    topic.write(acl_record(ACL, present=True))
    response = await scene.ask(delete_acls.handle, DELETION)
    assert len(response.filter_results[0].matching_acls) == 1 and ACL not in scene.state.acls


async def test_a_user_that_was_just_created_at_another_gateway_is_deleted(scene: Scene, topic: FakeTopic) -> None:
    key = ScramKey(ScramMechanism.SCRAM_SHA_256, "ann")
    await scene.start()
    topic.write(scram_record(key, credential_of(key.mechanism, "secret", b"salt", MIN_ITERATIONS)))
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="ann", mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    response = await scene.ask(alter_user_scram_credentials.handle, request)
    assert response.results[0].error_code == ErrorCode.NONE and not scene.state.scram


async def test_a_quota_that_was_just_changed_at_another_gateway_is_changed_back(
    scene: Scene, topic: FakeTopic
) -> None:
    key = QuotaKey(frozenset({("user", "ann")}), "producer_byte_rate")
    topic.write(quota_record(key, 1_000.0))
    await scene.start()
    topic.write(quota_record(key, 2_000.0))
    row = AlterClientQuotasRequest.EntryData
    entry = row(
        entity=[row.EntityData(entity_type="user", entity_name="ann")], ops=[row.OpData(key=key.quota, value=1_000.0)]
    )
    response = await scene.ask(alter_client_quotas.handle, AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == ErrorCode.NONE
    assert scene.state.quotas[key.entity] == {key.quota: 1_000.0}
