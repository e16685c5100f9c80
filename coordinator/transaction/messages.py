"""Requests to the transaction coordinator, and its answers: the fields of the APIs, independent of their versions."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.topics import TopicPartition
from protocol.kafka.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from protocol.kafka.errors import ErrorCode

ANY_DURATION = -1


class Producer(NamedTuple):
    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """`expected` is the id and epoch of a producer that continues after an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    error: ErrorCode
    producer: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    """AddPartitionsToTxn of one transactional id. Also AddOffsetsToTxn: its partition is that of the group.

    `client_version` is the client's transaction.version: 2 if a partition's leader sends the request to add a partition
    to which the client has written (AddPartitionsToTxn from version 4), else 0.
    """

    transactional_id: str
    producer: Producer
    partitions: Set[TopicPartition]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """`client_version` is 2 from EndTxn version 5 on, else 0."""

    transactional_id: str
    producer: Producer
    committed: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """The client continues with `producer`; the response to older clients does not contain it."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


InitProducerIdReply = Callable[[InitProducerIdResponse], None]
AddPartitionsReply = Callable[[ErrorCode], None]
EndTxnReply = Callable[[EndTxnResponse], None]
VerifyPartitionsResponse = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """While markers are written, `partitions` are those without a marker yet. Times are in ms since the epoch."""

    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIMESTAMP
    producer: Producer = NO_PRODUCER
    partitions: Set[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """An empty filter accepts all."""

    producer_ids: Set[int] = frozenset()
    states: Set[str] = frozenset()
    longer_than_ms: int = ANY_DURATION


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    error: ErrorCode
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()
