"""AlterUserScramCredentials (key 51), v0 (KIP-554).

The client sends the salted password. The stored values verify the password, but do not reveal it.
"""

from __future__ import annotations

from gateway.errors import KafkaError, error_code
from gateway.fan_out import sliced
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.security.records import MECHANISMS, ScramKey, scram_record
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from protocol.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
)

MAX_SALT_BYTES = 1_024
"""Kafka has no limit; its tools make 26 bytes. Any client that sends the user's name gets the salt, before a login."""

_Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Changes = dict[ScramKey, ScramCredential | None]


async def handle(call: Call[AlterUserScramCredentialsRequest]) -> AlterUserScramCredentialsResponse:
    changes, errors = Changes(), dict[str, KafkaError]()
    try:
        await call.cluster.security.catch_up()
        changes, errors = await _checked(call)
        records = [scram_record(*change) async for change in sliced(changes.items())]
        await call.cluster.security.change(records, call.context.requester)
    except (KafkaError, PulsarError) as error:
        unknown = KafkaError(error_code(error), str(error))
        errors = {each.name: unknown async for each in sliced(_asked(call))} | errors
        changes = {}
    rows = [_Row(user=key.user, error_message=None) async for key in sliced(changes)]
    async for user, failure in sliced(errors.items()):
        call.count_error(failure.code)
        rows.append(_Row(user=user, error_code=failure.code, error_message=failure.text))
    return AlterUserScramCredentialsResponse(results=rows)


def _asked(call: Call[AlterUserScramCredentialsRequest]) -> list[_Deletion | _Upsertion]:
    return [*call.request.deletions, *call.request.upsertions]


async def _checked(call: Call[AlterUserScramCredentialsRequest]) -> tuple[Changes, dict[str, KafkaError]]:
    """Return the changes, and why other users are not changed."""
    known = call.cluster.security.state.scram
    changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
    errors: dict[str, KafkaError] = {}
    async for each in sliced(_asked(call)):
        if each.name in errors:
            continue
        if changes.pop(each.name, None) is not None:
            text = "A user credential cannot be altered twice in the same request"
            errors[each.name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
            continue
        try:
            key = ScramKey(_mechanism(each), each.name)
            if isinstance(each, _Deletion):
                _check_known(key in known)
                changes[each.name] = key, None
            else:
                changes[each.name] = key, _credential(key, each)
        except KafkaError as error:
            errors[each.name] = error
    return dict(changes.values()), errors


def _mechanism(each: _Deletion | _Upsertion) -> ScramMechanism:
    if not each.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(each.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _check_known(is_known: bool) -> None:
    if not is_known:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _credential(key: ScramKey, wanted: _Upsertion) -> ScramCredential:
    if not MIN_ITERATIONS <= wanted.iterations <= MAX_ITERATIONS:
        text = "Too few iterations" if wanted.iterations < MIN_ITERATIONS else "Too many iterations"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if len(wanted.salt) > MAX_SALT_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt too long")
    salted, salt = bytes(wanted.salted_password), bytes(wanted.salt)
    if not salted:  # everyone would know the password; Kafka's handler fails
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    return credential_of_salted(key.mechanism, salted, salt, wanted.iterations)
