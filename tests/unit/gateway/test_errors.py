"""The errors that clients get when storage fails."""

from __future__ import annotations

import pytest

from gateway.errors import KafkaError, error_code, fetch_error_code
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import (
    ClientClosedError,
    ConnectionLostError,
    NotAuthenticatedError,
    NotAuthorizedError,
    ProducerFencedError,
    RequestTimeoutError,
    TopicTerminatedError,
)
from protocol.kafka.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.INVALID_RECORD), ErrorCode.INVALID_RECORD),
        (ConnectionLostError("gone"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ProducerFencedError("by another"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AdminError(503, "busy"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AdminError(0, "refused"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AdminError(412, "Can't find owner for topic t"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AdminError(412, "Topic has active producers"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (AdminError(404, "internalStats: Topic has zero partitions"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (AdminError(404, "Topic partitions were not yet created"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ClientClosedError("the log is closed"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AdminError(403, "forbidden"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (NotAuthenticatedError("the gateway's token has expired"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (NotAuthorizedError("the gateway's role lacks a right"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (TimeoutError(), ErrorCode.REQUEST_TIMED_OUT),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)  # fmt: skip
def test_code(error: Exception, code: ErrorCode) -> None:
    assert error_code(error) is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (RequestTimeoutError("SUBSCRIBE"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (KafkaError(ErrorCode.LEADER_NOT_AVAILABLE), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE), ErrorCode.OFFSET_OUT_OF_RANGE),
        (TopicTerminatedError("no more"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (AdminError(503, "busy"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_a_fetch_answers_only_what_consumers_take(error: Exception, code: ErrorCode) -> None:
    """Java's consumer throws for any other code, for instance REQUEST_TIMED_OUT."""
    assert fetch_error_code(error) is code
