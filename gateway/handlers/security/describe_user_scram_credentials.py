"""DescribeUserScramCredentials (key 50), v0 (KIP-554): which users have which mechanisms."""

from __future__ import annotations

from collections import Counter

from gateway.fan_out import Slices
from gateway.requests.call import Call
from gateway.security.records import MECHANISM_CODES
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


async def handle(call: Call[DescribeUserScramCredentialsRequest]) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[_Row.CredentialInfo]] = {}
    for key, credential in sorted(call.cluster.security.state.scram.items(), key=lambda item: item[0].mechanism.value):
        info = _Row.CredentialInfo(mechanism=MECHANISM_CODES[key.mechanism], iterations=credential.iterations)
        known.setdefault(key.user, []).append(info)
    asked = Counter(user.name for user in call.request.users or ()) or Counter(known)
    slices, results = Slices(), []
    for user, times in asked.items():
        await slices.pause()
        row = _row(user, times, known.get(user, []), named=bool(call.request.users))
        call.count_error(ErrorCode(row.error_code))
        results.append(row)
    return DescribeUserScramCredentialsResponse(results=results)


def _row(user: str, times: int, found: list[_Row.CredentialInfo], *, named: bool) -> _Row:
    if named and times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _Row(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=text)
    if not found:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return _Row(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=text)
    return _Row(user=user, credential_infos=found)
