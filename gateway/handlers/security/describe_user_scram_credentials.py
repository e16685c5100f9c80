"""DescribeUserScramCredentials (key 50), v0 (KIP-554): which users have which mechanisms."""

from __future__ import annotations

from gateway.fan_out import Slices, sliced
from gateway.requests.call import Call
from gateway.requests.repeated import times_of
from gateway.security.records import MECHANISM_CODES
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


async def handle(call: Call[DescribeUserScramCredentialsRequest]) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[_Row.CredentialInfo]] = {}
    async for key, credential in sliced(tuple(call.cluster.security.state.scram.items())):
        info = _Row.CredentialInfo(mechanism=MECHANISM_CODES[key.mechanism], iterations=credential.iterations)
        known.setdefault(key.user, []).append(info)
    asked = await times_of(user.name for user in call.request.users or ()) or dict.fromkeys(known, 1)
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
    return _Row(user=user, credential_infos=sorted(found, key=lambda info: info.mechanism))
