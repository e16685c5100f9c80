"""Errors that clients get, and the Kafka error code for each Pulsar error. The mapping is only here."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar import errors as pulsar
from gateway.pulsar.admin.http import AdminError
from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.errors import ErrorCode


class KafkaError(Exception):
    """The client gets ``code``, with the text if the API has a field for it."""

    def __init__(self, code: ErrorCode, text: str | None = None) -> None:
        super().__init__(text or code.name)
        self.code = code
        self.text = text


class RejectedRecords(KafkaError):
    """Some records are refused; ``reasons`` gives the reason for each, by its number in the batch (KIP-467)."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, "One or more records have been rejected")
        self.reasons = reasons


class UndecompressableRecords(KafkaError):
    """The compressed bytes of the records are damaged. Kafka has no error code for this."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, text)


_BY_EXCEPTION: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (InvalidBatch, ErrorCode.INVALID_RECORD),
    (pulsar.MessageTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (pulsar.TopicNotFoundError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (pulsar.TopicTerminatedError, ErrorCode.POLICY_VIOLATION),
    (pulsar.NotAuthenticatedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # the client has done nothing wrong
    (pulsar.NotAuthorizedError, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (pulsar.NotAllowedError, ErrorCode.POLICY_VIOLATION),
    (pulsar.ProducerFencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (pulsar.ClientClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (pulsar.RequestTimeoutError, ErrorCode.REQUEST_TIMED_OUT),
    (pulsar.RetriableError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (pulsar.PulsarError, ErrorCode.UNKNOWN_SERVER_ERROR),
    (TimeoutError, ErrorCode.REQUEST_TIMED_OUT),
    (OSError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
)


def _by_status(error: Exception) -> ErrorCode:
    """For errors of the admin API, the HTTP status decides whether the error is retriable."""
    if isinstance(error, AdminError) and error.not_found:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    passes = isinstance(error, pulsar.PulsarError) and error.retriable
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if passes else ErrorCode.UNKNOWN_SERVER_ERROR


def error_code(error: BaseException) -> ErrorCode:
    """The code for an exception of the storage layers; UNKNOWN_SERVER_ERROR for a defect in the gateway."""
    if isinstance(error, KafkaError):
        return error.code
    for kind, code in _BY_EXCEPTION:
        if isinstance(error, kind):
            return code if kind is not pulsar.PulsarError else _by_status(error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


_OF_A_FETCH = {
    ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
}  # fmt: skip
"""After other codes Java's consumer throws an exception, and librdkafka reports an error to the application."""


def fetch_error_code(error: BaseException) -> ErrorCode:
    """The code for an exception in the fetch of a partition: NOT_LEADER_OR_FOLLOWER for temporary errors."""
    code = error_code(error)
    if code in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE}:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in _OF_A_FETCH else ErrorCode.UNKNOWN_SERVER_ERROR
