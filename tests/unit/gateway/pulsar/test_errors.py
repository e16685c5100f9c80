"""Error codes of the protocol become exceptions that show what the caller can do."""

import pytest

from gateway.pulsar.errors import (
    REFUSED_SENDS,
    NotAuthenticatedError,
    NotAuthorizedError,
    ProducerFencedError,
    PulsarError,
    ServiceNotReadyError,
    TopicNotFoundError,
    UnknownBrokerError,
    error_from_server,
)
from protocol.pulsar.pulsar_commands_pb2 import ServerError


@pytest.mark.parametrize(
    ("code", "error", "retriable"),
    [
        (ServerError.ServiceNotReady, ServiceNotReadyError, True),
        (ServerError.TopicNotFound, TopicNotFoundError, False),
        (ServerError.AuthorizationError, NotAuthorizedError, False),
        (ServerError.AuthenticationError, NotAuthenticatedError, False),
        (ServerError.ProducerFenced, ProducerFencedError, False),
        (ServerError.UnknownError, UnknownBrokerError, True),
        (99, PulsarError, False),
    ],
)
def test_error_from_server(code: int, error: type[PulsarError], retriable: bool) -> None:
    found = error_from_server(code, "why")
    assert type(found) is error
    assert found.retriable is retriable
    assert "why" in str(found)


@pytest.mark.parametrize("code", [ServerError.PersistenceError, ServerError.UnknownError, ServerError.MetadataError])
def test_failures_of_writing_are_no_refusals(code: int) -> None:
    assert code not in REFUSED_SENDS
