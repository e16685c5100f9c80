"""What can go wrong between the gateway and Pulsar, by what the caller can do about it."""

from protocol.pulsar.pulsar_commands_pb2 import ServerError


class PulsarError(Exception):
    """Pulsar refused, or could not be reached."""

    retriable = False


class RetriableError(PulsarError):
    """The same attempt, with a fresh lookup and after a pause, may succeed."""

    retriable = True


class ConnectionLostError(RetriableError):
    """The connection to the broker broke or could not be made."""


class ClosedByBrokerError(ConnectionLostError):
    """The broker's end closed or reset the connection, as the system does when the broker's process ends."""


class RequestTimeoutError(RetriableError):
    """The broker did not answer in time. Whether it did the work is unknown."""


class ServiceNotReadyError(RetriableError):
    """The topic is being loaded, unloaded or moved, or the broker is not ready."""


class TooManyRequestsError(RetriableError):
    """The broker sheds load."""


class BrokerPersistenceError(RetriableError):
    """BookKeeper or the metadata store failed below the broker."""


class UnknownBrokerError(RetriableError):
    """The broker failed for a reason that has no code: it does not reach its ZooKeeper, for instance."""


class ProducerBusyError(RetriableError):
    """Another producer holds the name or the exclusive access."""


class ConsumerBusyError(RetriableError):
    """Another consumer holds the subscription."""


class TopicClosedError(RetriableError):
    """The broker closed the producer or consumer, usually because the topic moves."""


class QuotaExceededError(RetriableError):
    """The namespace's backlog quota holds producers back."""


class TopicNotFoundError(PulsarError):
    """The topic does not exist."""


class NotAuthorizedError(PulsarError):
    """The credentials are wrong or do not allow this."""


class ProducerFencedError(PulsarError):
    """A newer exclusive producer has taken the topic."""


class NotAllowedError(PulsarError):
    """The topic's or namespace's policies do not allow this."""


class TopicTerminatedError(PulsarError):
    """The topic takes no more messages, ever."""


class MessageTooLargeError(PulsarError):
    """The entry is larger than the broker takes."""


class ChecksumError(PulsarError):
    """The entry was damaged on its way to the broker."""


class ProtocolError(PulsarError):
    """The peer does not speak the protocol as expected."""


class ListenerError(PulsarError):
    """What the broker sent to one producer or consumer cannot be taken on this side; the others go on."""


class ClientClosedError(PulsarError):
    """The client, producer or reader was closed on this side."""


_BY_SERVER_ERROR: dict[int, type[PulsarError]] = {
    ServerError.UnknownError: UnknownBrokerError,
    ServerError.MetadataError: BrokerPersistenceError,
    ServerError.PersistenceError: BrokerPersistenceError,
    ServerError.AuthenticationError: NotAuthorizedError,
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
"""Errors of a SEND that the broker raises before it writes. After any other, the entry may be in the log."""


def error_from_server(code: int, message: str) -> PulsarError:
    """The exception for an error code of the protocol; unknown codes are plain, final PulsarErrors."""
    known = code in ServerError.values()
    name = ServerError.Name(ServerError.ValueType(code)) if known else str(code)
    return _BY_SERVER_ERROR.get(code, PulsarError)(f"{name}: {message}")
