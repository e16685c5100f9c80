"""Credentials that the gateway refuses: those that unauthenticated clients could make it repeat, and what is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway.handlers.security import alter_user_scram_credentials as module
from gateway.handlers.security.alter_user_scram_credentials import MAX_SALT_BYTES
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import AlterUserScramCredentialsRequest

_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256 = 1


@pytest.mark.parametrize(
    ("salt_bytes", "password_bytes", "code"),
    [
        (MAX_SALT_BYTES, 32, ErrorCode.NONE),
        (MAX_SALT_BYTES + 1, 32, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (26, 0, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_what_a_credential_may_be(salt_bytes: int, password_bytes: int, code: ErrorCode) -> None:
    wanted = _Upsertion(
        name="alice", mechanism=SHA_256, iterations=4_096, salt=bytes(salt_bytes),
        salted_password=bytes(password_bytes),
    )  # fmt: skip
    security = SimpleNamespace(change=AsyncMock(), catch_up=AsyncMock(), state=SimpleNamespace(scram={}))
    call: Any = SimpleNamespace(
        request=AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]),
        cluster=SimpleNamespace(security=security), context=SimpleNamespace(requester=None),
        count_error=lambda code: None,
    )  # fmt: skip
    answer = await module.handle(call)
    assert [row.error_code for row in answer.results] == [code]
    [[records, _], _] = security.change.call_args
    assert len(records) == (code is ErrorCode.NONE)
