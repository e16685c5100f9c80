"""Errors between the gateway and Pulsar, by what the caller can do about them."""

from protocol.pulsar.pulsar_commands_pb2 import ServerError


class PulsarError(Exception):
    """Pulsar refused a request, or could not be reached."""

    retriable = False


class RetriableError(PulsarError):
    """The same attempt may succeed after a pause and with a new lookup."""

    retriable = True


class ConnectionLostError(RetriableError):
    """The connection to the broker was lost or could not be opened."""


class ClosedByBrokerError(ConnectionLostError):
    """The broker's side closed or reset the connection, as the system does when the broker process ends."""


class RequestTimeoutError(RetriableError):
    """The broker did not answer in time. It may have executed the request."""


class ServiceNotReadyError(RetriableError):
    """The topic is being loaded, unloaded or moved, or the broker is not ready."""


class TooManyRequestsError(RetriableError):
    """The broker refuses requests because of overload."""


class BrokerPersistenceError(RetriableError):
    """BookKeeper or the metadata store failed below the broker."""


class UnknownBrokerError(RetriableError):
    """The broker failed for a reason that has no error code, for example because it cannot reach ZooKeeper."""


class ProducerBusyError(RetriableError):
    """Another producer holds the name or the exclusive access."""


class ConsumerBusyError(RetriableError):
    """Another consumer holds the subscription."""


class TopicClosedError(RetriableError):
    """The broker closed the producer or consumer, usually because the topic moves to another broker."""


class QuotaExceededError(RetriableError):
    """The namespace's backlog quota blocks producers."""


class TopicNotFoundError(PulsarError):
    """The topic does not exist."""


class NotAuthorizedError(PulsarError):
    """The credentials are wrong, or do not allow the request."""


class NotAuthenticatedError(NotAuthorizedError):
    """The broker does not know the role: for instance, the token has expired, and its file is not renewed yet."""


class ProducerFencedError(PulsarError):
    """A newer exclusive producer has taken the topic."""


class NotAllowedError(PulsarError):
    """The policies of the topic or the namespace do not allow the request."""


class TopicTerminatedError(PulsarError):
    """The topic was terminated: it never accepts messages again."""


class MessageTooLargeError(PulsarError):
    """The entry is larger than the broker accepts."""


class ChecksumError(PulsarError):
    """The entry was damaged between this client and the broker."""


class ProtocolError(PulsarError):
    """The peer does not speak the protocol as expected."""


class ListenerError(PulsarError):
    """Data that the broker sent to one producer or consumer cannot be handled here; the others continue."""


class ClientClosedError(PulsarError):
    """The client, producer or reader was closed on this side."""


_BY_SERVER_ERROR: dict[int, type[PulsarError]] = {
    ServerError.UnknownError: UnknownBrokerError,
    ServerError.MetadataError: BrokerPersistenceError,
    ServerError.PersistenceError: BrokerPersistenceError,
    ServerError.AuthenticationError: NotAuthenticatedError,
    ServerError.AuthorizationError: NotAuthorizedError,
    ServerError.ConsumerBusy: ConsumerBusyError,
    ServerError.ServiceNotReady: ServiceNotReadyError,
    ServerError.ProducerBlockedQuotaExceededError: QuotaExceededError,
    ServerError.ProducerBlockedQuotaExceededException: QuotaExceededError,
    ServerError.ChecksumError: ChecksumError,
    ServerError.TopicNotFound: TopicNotFoundError,
    ServerError.TooManyRequests: TooManyRequestsError,
    ServerError.TopicTerminatedError: TopicTerminatedError,
    ServerError.ProducerBusy: ProducerBusyError,
    ServerError.NotAllowedError: NotAllowedError,
    ServerError.ProducerFenced: ProducerFencedError,
}

REFUSED_SENDS: frozenset[int] = frozenset({
    ServerError.ChecksumError,
    ServerError.TopicTerminatedError,
    ServerError.NotAllowedError,
    ServerError.ProducerFenced,
    ServerError.ProducerBlockedQuotaExceededError,
    ServerError.ProducerBlockedQuotaExceededException,
})  # fmt: skip
"""Errors that the broker returns for a SEND before it writes the entry. After any other error, the entry may be in the
log."""


_TOO_LARGE = "maximum message size"
"""In the message of NotAllowedError: an entry that is larger than the policies of its topic allow."""


def error_from_server(code: int, message: str) -> PulsarError:
    """The exception for an error code of the protocol. An unknown code gives a PulsarError, which is not retriable."""
    if code == ServerError.NotAllowedError and _TOO_LARGE in message:
        return MessageTooLargeError(message)
    known = code in ServerError.values()
    name = ServerError.Name(ServerError.ValueType(code)) if known else str(code)
    return _BY_SERVER_ERROR.get(code, PulsarError)(f"{name}: {message}")
